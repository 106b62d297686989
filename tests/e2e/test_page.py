"""The page at `/`, used by a real browser: type, look, click; everything it loads comes from the service itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from .conftest import DOCUMENTS
from .processes import RunningService, system_program

pytestmark = pytest.mark.browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MARKUP = next(document for document in DOCUMENTS if document["id"] == "markup")


@dataclass
class Visit:
    """A tab on the page, and what went on in it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def ask(self, query: str) -> None:
        """Type a query, press Enter, and wait until results and answer are there."""
        self.page.get_by_role("searchbox").fill(query)
        self.page.get_by_role("searchbox").press("Enter")
        expect(self.page.locator("#answer")).to_be_visible()
        expect(self.page.locator("main[aria-busy]")).to_have_count(0)


# Not for the session: while Playwright runs, so does an event loop in this thread, and others start their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = system_program("chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser, service: RunningService) -> Iterator[Visit]:
    """A fresh tab on the page; afterwards nothing must have gone wrong or to another host."""
    page = browser.new_page(viewport={"width": 1000, "height": 1200})
    page.set_default_timeout(30_000)
    tab = Visit(page)
    page.on("console", lambda message: tab.complaints.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    page.on("request", lambda request: tab.hosts.add(urlsplit(request.url).netloc))
    page.goto(service.url)
    yield tab
    page.close()
    assert tab.complaints == []
    assert tab.hosts == {urlsplit(service.url).netloc}


def test_a_query_shows_results_with_the_terms_marked(visit: Visit, tmp_path: Path) -> None:
    visit.ask("lighthouse keeper")
    results = visit.page.locator("#list > li")
    expect(results).to_have_count(len(DOCUMENTS))
    marked = {text.lower() for text in results.locator("mark").all_text_contents()}
    assert marked == {"lighthouse", "keeper"}
    screenshot = visit.page.screenshot(path=tmp_path / "results.png", full_page=True)
    assert screenshot.startswith(b"\x89PNG")


@pytest.mark.usefixtures("bundled_models")
def test_an_answer_is_shown_and_marked_in_its_passage(visit: Visit) -> None:
    visit.ask("who was the first keeper of the lighthouse at Cape Wren")
    expect(visit.page.locator("#answer-heading")).to_have_text("Answer")
    expect(visit.page.locator("#answer .text")).to_have_text("Ingrid Vale")
    expect(visit.page.locator("#answer .context mark")).to_have_text("Ingrid Vale")
    expect(visit.page.locator("#answer .context")).to_contain_text("Its first keeper was Ingrid Vale, who kept it")


@pytest.mark.usefixtures("bundled_models")
def test_an_answer_behind_emoji_is_marked_where_it_is(visit: Visit) -> None:
    visit.ask("where did the probe leave from")
    expect(visit.page.locator("#answer .context mark")).to_have_text("Kourou")


@pytest.mark.usefixtures("bundled_models")
def test_a_question_without_an_answer_says_so(visit: Visit) -> None:
    visit.ask("what is the capital of Belarus")
    expect(visit.page.locator("#answer-heading")).to_have_text("No answer found")


def test_markup_in_a_document_is_shown_and_never_obeyed(visit: Visit) -> None:
    visit.ask("tag shown as text")
    item = visit.page.locator("#list > li").filter(has_text="never obeyed")
    expect(item.locator("h3")).to_have_text(MARKUP["title"])
    expect(item.locator(".passage")).to_have_text(MARKUP["text"])
    expect(visit.page.locator("main img, main script, main b")).to_have_count(0)
    assert "stolen" not in visit.page.title()


def test_a_query_with_markup_is_not_obeyed_either(visit: Visit) -> None:
    visit.ask("<img src=x onerror=alert(1)> beavers")
    expect(visit.page.locator("main img")).to_have_count(0)


def test_a_query_has_an_address_that_shows_it_again(visit: Visit) -> None:
    visit.ask("beavers & dams?")
    address = visit.page.url
    first = visit.page.locator("#list > li h3").first.text_content()
    visit.page.goto(address)
    expect(visit.page.locator("#list > li h3").first).to_have_text(first or "")
    expect(visit.page.get_by_role("searchbox")).to_have_value("beavers & dams?")


def test_going_back_shows_the_query_before(visit: Visit) -> None:
    visit.ask("beavers")
    visit.ask("rye bread")
    visit.page.go_back()
    expect(visit.page.get_by_role("searchbox")).to_have_value("beavers")
    expect(visit.page.locator("#list > li").first).to_be_visible()


def test_the_api_description_is_a_page_without_errors(visit: Visit) -> None:
    visit.page.get_by_role("link", name="API").click()
    expect(visit.page.get_by_text("/v1/search").first).to_be_visible()
