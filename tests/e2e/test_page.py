"""The page at `/`, used by a real browser: type, look, click; everything it loads comes from the service itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import DOCUMENTS
from .keyed import keyed_data, make_key, revoke_key
from .processes import RunningService, running_service, wait_until

pytestmark = pytest.mark.browser

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


@pytest.fixture(scope="module")
def keyed_settings(service_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return keyed_data(service_settings, tmp_path_factory.mktemp("keyed"))


@pytest.fixture(scope="module")
def keyed_service(
    keyed_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningService, str]]:
    """A service with a key, and the key."""
    text = make_key(keyed_settings, "page", "--scope", "search")
    with running_service(keyed_settings, folder=tmp_path_factory.mktemp("service")) as running:
        yield running, text


def status(service: RunningService, key: str) -> int:
    return httpx.get(f"{service.url}/v1/indexes", headers={"X-API-Key": key}).status_code


def enter(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Use it").click()


def test_a_service_with_keys_asks_for_one_and_keeps_it_in_the_tab(
    browser: Browser, keyed_service: tuple[RunningService, str]
) -> None:
    service, key = keyed_service
    context = browser.new_context()
    page, other = context.new_page(), context.new_page()
    page.set_default_timeout(30_000)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url + (request.post_data or "")))
    page.goto(f"{service.url}/?q=beavers")
    expect(page.locator("#fault")).to_have_text("This service needs an API key.")
    expect(page.get_by_role("link", name="Metrics")).to_be_hidden()
    enter(page, f"{key[:-1]}~")
    expect(page.locator("#fault")).to_contain_text("mistyped")
    enter(page, f" {key} ")
    expect(page.locator("#list > li").first).to_be_visible()
    expect(page.get_by_label("API key")).to_be_hidden()
    expect(page.locator("#index")).to_contain_text("documents")
    page.reload()
    expect(page.locator("#list > li").first).to_be_visible()
    assert page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 1]
    assert not [each for each in sent if key in each]
    other.goto(service.url)
    expect(other.get_by_label("API key")).to_be_visible()
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_label("API key")).to_be_visible()
    expect(page.locator("#list > li")).to_have_count(0)
    assert page.evaluate("sessionStorage.length") == 0
    context.close()


def test_a_key_that_is_revoked_or_may_not_search_is_told_and_asked_for_again(
    browser: Browser, keyed_service: tuple[RunningService, str], keyed_settings: dict[str, str]
) -> None:
    service, _ = keyed_service
    page = browser.new_page()
    page.set_default_timeout(30_000)
    page.goto(service.url)
    short_lived, narrow = (make_key(keyed_settings, name, "--scope", name) for name in ("search", "index"))
    wait_until(lambda: status(service, narrow) == 403, "the keys are known")
    enter(page, narrow)
    expect(page.locator("#fault")).to_contain_text("This needs a key with the scope `search`.")
    enter(page, short_lived)
    expect(page.locator("#index")).to_contain_text("documents")
    revoke_key(keyed_settings, "search")
    wait_until(lambda: status(service, short_lived) == 401, "the key is revoked")
    page.get_by_role("searchbox").fill("beavers")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("#fault")).to_contain_text("revoked")
    expect(page.get_by_label("API key")).to_be_focused()
    page.context.close()


def test_the_api_description_names_scopes_and_needs_no_key(
    browser: Browser, keyed_service: tuple[RunningService, str]
) -> None:
    page = browser.new_page()
    page.goto(f"{keyed_service[0].url}/docs")
    expect(page.get_by_text("With keys, it needs one with the scope search.").first).to_be_visible()
    expect(page.get_by_text("The API key is not accepted").first).to_be_visible()
    page.context.close()
