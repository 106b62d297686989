"""Pages of other origins in a real browser: they get nothing, unless the operator allows their origin."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from .keyed import keyed_data, make_key
from .processes import RunningService, running_service

pytestmark = pytest.mark.browser

SEARCH = """async ([url, headers, mode]) => {
  try {
    const response = await fetch(url, { method: "POST", headers, mode, body: '{"query": "beavers"}' });
    return response.status;
  } catch (error) {
    return error.name;
  }
}"""


class _EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """The origin of another site's page, on this machine too."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def page(browser: Browser, origin: str) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(origin)
    yield page
    page.context.close()


def search(page: Page, url: str, headers: dict[str, str], mode: str = "cors") -> object:
    return page.evaluate(SEARCH, [f"{url}/v1/search", headers, mode])


def searches(service: RunningService) -> list[int]:
    """The statuses of all searches that reached the service."""
    return [line["status"] for line in service.log() if line.get("route") == "/v1/search" and line["method"] == "POST"]


def test_a_page_of_another_site_cannot_make_a_service_without_keys_work(
    page: Page, service_settings: dict[str, str], tmp_path: Path
) -> None:
    with running_service(service_settings, folder=tmp_path) as service:
        assert search(page, service.url, {"Content-Type": "application/json"}) == "TypeError"
        assert searches(service) == []  # the browser asked first, and was told no
        for mode in ("cors", "no-cors"):  # as text/plain, which goes out unasked
            assert search(page, service.url, {}, mode) == "TypeError"
        assert searches(service) == [403, 403]


def test_a_page_of_an_allowed_origin_searches_with_a_key_and_another_does_not(
    page: Page, origin: str, service_settings: dict[str, str], tmp_path: Path
) -> None:
    settings = keyed_data(service_settings, tmp_path) | {"CORS_ORIGINS": origin}
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {make_key(settings, 'web', '--scope', 'search')}",
    }
    with running_service(settings, folder=tmp_path) as service:
        assert search(page, service.url, headers) == 200
        assert search(page, service.url, {"Content-Type": "application/json"}) == 401
        page.goto(origin.replace("127.0.0.1", "localhost"))
        assert search(page, service.url, headers) == "TypeError"
        assert searches(service) == [200, 401]
