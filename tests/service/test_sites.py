"""What a page of another site gets out of a service: of one without keys nothing, of an allowed origin what it asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from starlette.datastructures import Headers

from service.extras import StartupError
from service.problems import ForeignPage, WrongHost
from service.settings import Settings
from service.sites import Sites, is_loopback

from .conftest import started
from .keyed import add_key, bearer, keyed_settings
from .test_http import problem_of

ORIGIN = "https://intranet.example"
EVIL = "https://evil.example"
SEARCH = {"query": "honey"}


def sites(**settings: str) -> Sites:
    return Sites(Settings(**settings))  # type: ignore[arg-type]  # all of them are texts


def is_answered(sent: str, **settings: str) -> bool:
    try:
        sites(**settings).check_host(Headers({"host": sent}))
    except WrongHost:
        return False
    return True


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1", "127.0.0.1:80", "127.8.9.1", "[::1]", "[::1]:8000"],
)
def test_loopback_is_answered_by_its_names(host: str) -> None:
    assert is_answered(host)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "evil.example:8000", "192.0.2.1", "0.0.0.0", "[::2]",
     "", " ", "localhost evil.example", "user@localhost", "localhost/evil", "127.0.0.1:80:80", "[::1", "::1",
     "localhost\xb9"],
)  # fmt: skip
def test_any_other_name_is_not(host: str) -> None:
    assert not is_answered(host)


def test_the_configured_host_and_those_that_are_allowed_are_answered_too() -> None:
    assert is_answered("search.example:8000", allowed_hosts="other, Search.example")
    assert is_answered("192.0.2.1", allowed_hosts="192.0.2.1")
    assert not is_answered("sub.search.example", allowed_hosts="search.example")


def test_beyond_loopback_every_address_is_answered_but_no_strange_name() -> None:
    beyond = {"host": "0.0.0.0", "auth": "off"}
    assert is_answered("192.0.2.1:8000", **beyond)
    assert is_answered("[2001:db8::1]", **beyond)
    assert is_answered("localhost:8000", **beyond)
    assert not is_answered("evil.example", **beyond)
    assert is_answered("tercet:8000", **beyond, allowed_hosts="tercet")


def test_one_host_is_named_and_no_more() -> None:
    for lines in ([], [(b"host", b"localhost"), (b"host", b"localhost")]):
        with pytest.raises(WrongHost):
            sites().check_host(Headers(raw=lines))


@pytest.mark.parametrize(
    ("host", "stays_here"),
    [("127.0.0.1", True), ("127.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, stays_here: bool) -> None:
    assert is_loopback(host) == stays_here


def test_an_unknown_host_is_one_sentence() -> None:
    with pytest.raises(StartupError, match=r"^Cannot listen on nowhere\.invalid: "):
        is_loopback("nowhere.invalid")


def is_let_in(method: str, **headers: str) -> bool:
    sent = Headers({"host": "localhost:8000"} | {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        sites(cors_origins=ORIGIN).check_page(method, sent)
    except ForeignPage:
        return False
    return True


def test_programs_and_our_own_page_may_do_what_other_pages_may_not() -> None:
    assert is_let_in("POST")
    assert is_let_in("POST", sec_fetch_site="same-origin", origin="http://localhost:8000")
    assert is_let_in("POST", origin="http://localhost:8000")  # a browser without Sec-Fetch-Site
    assert is_let_in("DELETE", sec_fetch_site="cross-site", origin=ORIGIN)
    assert is_let_in("GET", sec_fetch_site="cross-site", origin=EVIL)  # a link to our page
    for method in ("POST", "DELETE", "PUT", "NONSENSE"):
        assert not is_let_in(method, sec_fetch_site="cross-site", origin=EVIL)
        assert not is_let_in(method, sec_fetch_site="cross-site")
        assert not is_let_in(method, sec_fetch_site="same-site", origin="http://localhost:3000")
        assert not is_let_in(method, origin="http://localhost:3000")
        assert not is_let_in(method, origin="null")


def test_a_rebound_name_gets_nothing_from_a_service_without_keys(client: TestClient) -> None:
    for path in ("/", "/healthz", "/v1/indexes", "/metrics", "/openapi.json", "/v1/nothing"):
        problem = problem_of(client.get(path, headers={"host": "evil.example:8000"}), 421, "wrong-host")
        assert "TERCET_ALLOWED_HOSTS" in problem["detail"]
        assert "evil" not in str(problem)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_page_may_send_unasked_is_not_read(client: TestClient, kind: str) -> None:
    """These three types go out without a preflight; a program that sends them gets a 415, a page not even that."""
    for path in ("/v1/search", "/v1/answer", "/v1/jobs"):
        sent = client.post(path, content=b'{"query": "honey"}', headers={"content-type": kind})
        problem_of(sent, 415, "unsupported-media-type")
        page = {"content-type": kind, "origin": EVIL, "sec-fetch-site": "cross-site"}
        problem_of(client.post(path, content=b'{"query": "honey"}', headers=page), 403, "foreign-page")


def test_no_preflight_is_granted_by_default(client: TestClient) -> None:
    asked = {"origin": EVIL, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    response = client.options("/v1/search", headers=asked)
    problem_of(response, 405, "method-not-allowed")
    assert not [name for name in response.headers if name.startswith("access-control")]
    shown = client.get("/v1/indexes", headers={"origin": EVIL})
    assert "access-control-allow-origin" not in shown.headers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cors")


@pytest.fixture(scope="module")
def allowing(settings: Settings, folder: Path) -> Iterator[tuple[TestClient, str]]:
    """A service with a key that allows ORIGIN, and the key."""
    text = add_key(folder, "web")
    for client in started(keyed_settings(settings, folder, cors_origins=f"{ORIGIN}, http://localhost:3000")):
        yield client, text


def test_a_page_of_an_allowed_origin_may_send_a_key_and_read_the_answer(allowing: tuple[TestClient, str]) -> None:
    client, text = allowing
    asked = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    granted = client.options("/v1/search", headers=asked)
    assert (granted.status_code, granted.content) == (204, b"")
    assert granted.headers["access-control-allow-origin"] == ORIGIN
    assert {"Authorization", "Content-Type", "X-API-Key"} <= set(
        granted.headers["access-control-allow-headers"].split(", ")
    )
    assert "POST" in granted.headers["access-control-allow-methods"]
    assert granted.headers["vary"] == "Origin"
    answered = client.post("/v1/search", json=SEARCH, headers=bearer(text) | {"origin": ORIGIN})
    assert answered.status_code == 200
    assert answered.headers["access-control-allow-origin"] == ORIGIN
    assert "access-control-allow-credentials" not in answered.headers


def test_it_may_read_why_it_was_refused(allowing: tuple[TestClient, str]) -> None:
    client, _ = allowing
    refused = client.get("/v1/indexes", headers={"origin": ORIGIN})
    problem_of(refused, 401, "key-missing")
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    assert "Retry-After" in refused.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin", [EVIL, "null", "http://intranet.example", f"{ORIGIN}:444", f"{ORIGIN}.evil.example", ORIGIN.upper()]
)
def test_any_other_origin_gets_no_leave(allowing: tuple[TestClient, str], origin: str) -> None:
    client, text = allowing
    asked = {"origin": origin, "access-control-request-method": "POST"}
    problem_of(client.options("/v1/search", headers=asked), 401, "key-missing")
    shown = client.get("/v1/indexes", headers=bearer(text) | {"origin": origin})
    assert "access-control-allow-origin" not in shown.headers
    assert shown.headers["vary"] == "Origin"  # a cache must not give it to the allowed one


@pytest.mark.parametrize(
    "origins",
    [
        "*",
        "null",
        "intranet.example",
        "https://intranet.example/",
        "https://*.example",
        "https://a.example b",
        "ftp://a",
    ],
)
def test_an_origin_is_exact_or_no_setting(origins: str) -> None:
    with pytest.raises(ValueError, match="must list origins"):
        Settings(cors_origins=origins)


@pytest.mark.parametrize("hosts", ["*", "https://a.example", "a b", "a/b"])
def test_a_host_is_a_name_or_no_setting(hosts: str) -> None:
    with pytest.raises(ValueError, match="must list names"):
        Settings(allowed_hosts=hosts)
