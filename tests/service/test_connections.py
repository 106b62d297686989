"""What a connection may send before there is a request: how much, for how long, and of what protocol."""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from service import connections
from service.connections import LOOK_SECONDS, MAX_HEADER_BYTES, MAX_UNANSWERED, PART_BYTES, BoundedProtocol
from service.settings import Settings

from .conftest import Served, serving

BODY = b'{"query": "who keeps bees"}'
START = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(BODY)
PATIENCE_SECONDS = 0.3


@pytest.fixture(scope="module")
def service(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    bounded = {"request_timeout_seconds": 2.0, "jobs_path": tmp_path_factory.mktemp("jobs")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "HEADER_SECONDS", PATIENCE_SECONDS)
        with serving(settings.model_copy(update=bounded)) as served:
            yield served


@contextmanager
def connected(service: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=30) as connection:
        yield connection


def status(connection: socket.socket) -> int:
    """The status of the one response that comes, which is read whole."""
    response = HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


def problem(connection: socket.socket) -> tuple[int, str, str]:
    """The status, type and detail of the response that comes before the connection is closed."""
    received = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head.lower()
    document = json.loads(body)
    assert b"x-request-id: " + document["request_id"].encode() in head
    assert head.startswith(b"HTTP/1.1 %d " % document["status"])
    return document["status"], document["type"], document.get("detail", "")


def n_refused(service: Served, status: int) -> float:
    wanted = f'tercet_requests_total{{method="other",route="other",status="{status}"}}'
    lines = [line for line in httpx.get(f"{service.url}/metrics").text.splitlines() if line.startswith(wanted)]
    return sum(float(line.split()[-1]) for line in lines)


@pytest.mark.parametrize("end", [b"\r\n\r\n", b""], ids=["whole", "without end"])
@pytest.mark.parametrize("header", [b"X-Long: ", b"X: 1\r\n" * 4], ids=["one", "many"])
def test_headers_that_are_too_large_are_refused_whether_or_not_they_end(
    service: Served, header: bytes, end: bytes
) -> None:
    before = n_refused(service, 431)
    with connected(service) as connection:
        connection.sendall(START + header * (MAX_HEADER_BYTES // 8) + end)
        assert problem(connection) == (
            431,
            "/problems/headers-too-large",
            "The limit is 65,536 bytes, the request line included.",
        )
    assert n_refused(service, 431) == before + 1


@pytest.mark.parametrize(
    ("start", "more", "end"),
    [
        (b"0\r\n", b"X-Long: 123456789\r\n" * 500, b"\r\n"),
        (b"0\r\nX-Long: ", b"a" * 9_500, b""),
        (b"3;name=", b"a" * 9_500, b""),
    ],
    ids=["many trailers", "a trailer without end", "an extension of a chunk without end"],
)
def test_what_lies_beside_the_parts_of_a_body_is_bounded_too(
    service: Served, start: bytes, more: bytes, end: bytes
) -> None:
    with connected(service) as connection:
        connection.sendall(START + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(BODY), BODY) + start)
        for _ in range(60):
            connection.sendall(more)
        connection.sendall(end)
        detail = "The limit is 65,536 bytes beside the parts of its body."
        assert problem(connection) == (431, "/problems/headers-too-large", detail)


def test_trailers_and_extensions_within_bounds_are_passed_over(service: Served) -> None:
    with connected(service) as connection:
        for _ in range(2):
            connection.sendall(START + b"Transfer-Encoding: chunked\r\n\r\n")
            for place in range(len(BODY)):
                connection.sendall(b"1;x=%s\r\n%c\r\n" % (b"a" * 9_000, BODY[place]))
            connection.sendall(b"0\r\nX-Late: %s\r\n\r\n" % (b"a" * 9_000))
            assert status(connection) == 200


def test_headers_just_below_the_limit_are_served(service: Served) -> None:
    headers = {"X-Long": "a" * (MAX_HEADER_BYTES - 500)}
    with httpx.Client(base_url=service.url) as client:
        assert [client.get("/healthz", headers=headers).status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("sent", [b"\r\n", START], ids=["an empty line", "a part"])
def test_headers_that_do_not_come_are_not_waited_for(service: Served, sent: bytes) -> None:
    with connected(service) as connection:
        connection.sendall(sent)
        assert problem(connection)[:2] == (408, "/problems/request-too-slow")


def test_a_connection_on_which_nothing_is_asked_is_closed_without_a_word(service: Served) -> None:
    before = n_refused(service, 408)
    with connected(service) as connection:
        assert connection.recv(1) == b""
    assert n_refused(service, 408) == before


def test_a_second_request_has_as_long_as_the_first(service: Served) -> None:
    with connected(service) as connection:
        connection.sendall(START + LENGTH + BODY)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        connection.sendall(b"GET")
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert b"HTTP/1.1 408 Request Timeout\r\n" in received


def test_a_body_may_take_longer_than_headers_but_not_for_ever(service: Served) -> None:
    with connected(service) as connection:
        connection.sendall(START + LENGTH)
        connection.settimeout(2 * PATIENCE_SECONDS)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(30)
        connection.sendall(BODY)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
    with connected(service) as connection:
        connection.sendall(START + LENGTH + BODY[:5])
        assert problem(connection) == (408, "/problems/request-too-slow", "Its body did not come within 2 seconds.")


@pytest.mark.parametrize("sent", [b"bees\r\n\r\n", b"\x16\x03\x01\x02\x00", START + b"Content-Length: bees\r\n\r\n"])
def test_what_is_no_http_is_a_problem(service: Served, sent: bytes) -> None:
    with connected(service) as connection:
        connection.sendall(sent)
        assert problem(connection) == (400, "/problems/malformed-request", "")


def test_a_wish_for_another_protocol_is_passed_over(service: Served) -> None:
    headers = {"Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    with httpx.Client(base_url=service.url) as client:
        for protocol in ("websocket", "h2c"):
            asked = headers | {"Upgrade": protocol}
            assert client.get("/healthz", headers=asked).status_code == 200
            assert client.get("/v1/search", headers=asked).headers["allow"] == "POST"


def test_a_body_that_comes_with_a_wish_for_another_protocol_is_read(service: Served) -> None:
    wish = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    with httpx.Client(base_url=service.url) as client:
        for _ in range(2):  # a kept connection too
            assert client.post("/v1/search", headers=wish, json={"query": "who keeps bees"}).status_code == 200


def dribble(connection: socket.socket, piece: bytes) -> bytes:
    """What comes back from a server that is sent a piece every tenth of a second until it closes the connection."""
    received = b""
    connection.settimeout(0.1)
    for _ in range(200):
        try:
            connection.sendall(piece)
            came = connection.recv(65_536)
        except TimeoutError:
            continue
        except OSError:
            return received
        if not came:
            return received
        received += came
        time.sleep(0.05)
    raise AssertionError("the connection was held for ever")


@pytest.mark.parametrize(
    ("header", "piece"),
    [(b"Content-Length: 100000", b"a"), (b"Transfer-Encoding: chunked", b"1\r\na\r\n")],
    ids=["of known length", "chunked"],
)
def test_an_upload_that_dribbles_is_not_waited_for(service: Served, header: bytes, piece: bytes) -> None:
    start = b"POST /v1/jobs/upload?file_name=a.txt HTTP/1.1\r\nHost: localhost\r\n"
    start += b"Content-Type: application/octet-stream\r\n"
    with connected(service) as connection:
        connection.sendall(start + header + b"\r\n\r\n")
        received = dribble(connection, piece)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"Fewer than 2000 bytes of it came within 2 seconds." in received


@pytest.mark.parametrize("path", [b"/healthz", b"/nothing"])
def test_a_body_that_nobody_reads_does_not_hold_the_connection(service: Served, path: bytes) -> None:
    with connected(service) as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        assert dribble(connection, b"a").startswith(b"HTTP/1.1 ")


def test_a_connection_is_kept_after_a_body_that_came_late_but_not_for_ever(service: Served) -> None:
    with connected(service) as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n")
            assert status(connection) == 200
            connection.sendall(b"aa")
        assert connection.recv(1) == b""


def responses(connection: socket.socket) -> list[bytes]:
    """The statuses of the responses that come before the connection is closed."""
    received = b"".join(iter(lambda: connection.recv(65_536), b""))
    return [each[:3] for each in received.split(b"HTTP/1.1 ")[1:]]


WHOLE = START + b"Content-Length: 2\r\n\r\n{}"  # which is refused with 422, however busy the machine
GARBAGE = b"bees\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (WHOLE + GARBAGE, [b"422", b"400"]),
        (WHOLE * 3 + GARBAGE, [b"422", b"422", b"422", b"400"]),
        (WHOLE + START + b"Transfer-Encoding: chunked\r\n\r\nbees\r\n", [b"422", b"400"]),
        (WHOLE * 2 + START + b"Transfer-Encoding: chunked\r\n\r\nbees\r\n", [b"422", b"422", b"400"]),
        (WHOLE + START + b"X-Long: " + b"a" * MAX_HEADER_BYTES + b"\r\n\r\n", [b"422", b"431"]),
        (WHOLE + b"GET http://a:99999/ HTTP/1.1\r\n\r\n", [b"422", b"400"]),
        (WHOLE + START, [b"422", b"408"]),
        (START + b"Transfer-Encoding: chunked\r\n\r\nbees\r\n", [b"400"]),
    ],
    ids=[
        "garbage",
        "after three",
        "a bad body",
        "a bad body after two",
        "long headers",
        "a bad address",
        "a part",
        "alone",
    ],
)
def test_what_is_refused_does_not_take_the_place_of_what_was_asked_before(
    service: Served, sent: bytes, statuses: list[bytes]
) -> None:
    with connected(service) as connection:
        connection.sendall(sent)
        assert responses(connection) == statuses


@pytest.mark.parametrize(("version", "n_asked"), [(b"1.1", 1), (b"1.1", 3), (b"1.0", 1)])
def test_a_client_that_sends_no_more_is_answered(service: Served, version: bytes, n_asked: int) -> None:
    with connected(service) as connection:
        connection.sendall(WHOLE.replace(b"1.1", version) * n_asked)
        connection.shutdown(socket.SHUT_WR)
        assert [each for each in responses(connection) if each != b"100"] == [b"422"] * n_asked


@pytest.mark.parametrize(("version", "before"), [(b"1.1", [b"100"]), (b"1.0", [])])
def test_a_client_that_sends_no_more_is_answered_however_long_it_takes(
    service: Served, version: bytes, before: list[bytes]
) -> None:
    with searches_wait(service) as goes_on, connected(service) as connection:
        connection.sendall((START + LENGTH).replace(b"1.1", version) + BODY)
        connection.shutdown(socket.SHUT_WR)
        threading.Timer(3 * LOOK_SECONDS, goes_on.set).start()
        assert responses(connection) == [*before, b"200"]


def test_a_client_that_leaves_in_a_body_is_not_answered(service: Served) -> None:
    with connected(service) as connection:
        connection.sendall(START + LENGTH + BODY[:5])
        connection.shutdown(socket.SHUT_WR)
        assert responses(connection) == []


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
LARGEST_READ = 262_144


@pytest.mark.parametrize(
    ("request_", "n_asked"),
    [(GET % b"", 1_500), (GET % (b"X-Long: %s\r\n" % (b"a" * 3_000)), 400), (WHOLE, 50)],
    ids=["small", "more than one read", "with bodies"],
)
def test_all_that_is_asked_at_once_is_answered_but_little_of_it_begun_ahead(
    service: Served, monkeypatch: pytest.MonkeyPatch, request_: bytes, n_asked: int
) -> None:
    most_begun, most_held = 0, 0
    begin = BoundedProtocol.on_headers_complete

    def watch(protocol: BoundedProtocol) -> None:
        nonlocal most_begun, most_held
        begin(protocol)
        most_begun, most_held = max(most_begun, len(protocol.pipeline)), max(most_held, len(protocol._held))

    monkeypatch.setattr(BoundedProtocol, "on_headers_complete", watch)
    sent = request_ * (n_asked - 1) + request_.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    with connected(service) as connection:
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        assert responses(connection) == [b"422" if request_ == WHOLE else b"200"] * n_asked
        sender.join(30)
    assert 1 < most_begun < MAX_UNANSWERED + PART_BYTES // len(request_) + 2
    assert most_held <= LARGEST_READ


@contextmanager
def searches_wait(service: Served) -> Iterator[threading.Event]:
    """Searches that go on when the event is set."""
    engine = service.app.state.engine
    goes_on, encode = threading.Event(), engine.encoding._run

    def slow(items: Any) -> Any:
        goes_on.wait(60)
        return encode(items)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.encoding, "_run", slow)
        try:
            yield goes_on
        finally:
            goes_on.set()


def test_a_request_that_is_held_back_does_not_come_too_late(service: Served) -> None:
    with searches_wait(service) as goes_on, connected(service) as connection:
        connection.sendall(START + LENGTH + BODY + GET % b"" * 100 + START + b"Connection: close\r\n")
        threading.Timer(3 * PATIENCE_SECONDS, goes_on.set).start()
        assert connection.recv(1, socket.MSG_PEEK) == b"H"
        connection.sendall(LENGTH + BODY)
        assert responses(connection) == [b"200"] * 102


def test_a_client_that_leaves_while_its_requests_wait_is_no_fault_of_ours(
    service: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with searches_wait(service) as goes_on:
        with connected(service) as connection:
            connection.sendall((START + LENGTH + BODY) * 3)
            assert httpx.get(f"{service.url}/healthz").status_code == 200
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        goes_on.set()
    assert httpx.post(f"{service.url}/v1/search", json={"query": "who keeps bees"}).status_code == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


WISH = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
WISHED = START + b"Content-Length: %d\r\n" % len(BODY) + WISH + b"\r\n" + BODY
CHUNKED = START + WISH + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize(
    ("packets", "n_asked"),
    [
        (WISHED.partition(WISH), 1),
        ([WISHED * 3], 3),
        ([b"\r\n\r\n" + WISHED], 1),
        ([bytes([byte]) for byte in WISHED * 2], 2),
        ([CHUNKED + WISHED + GET % WISH + CHUNKED + WISHED], 5),
        ([WISHED.replace(b"Connection: Upgrade", b"Connection: keep-alive, upgrade")], 1),
        ([WISHED.replace(b"Upgrade: h2c", b"UPGRADE:\th2c, websocket")], 1),
        ([WISHED.replace(b"HTTP/1.1", b"HTTP/1.0")], 1),
    ],
    ids=["two packets", "pipelined", "after empty lines", "bytes", "chunked", "list", "spelling", "1.0"],
)
def test_a_wish_for_another_protocol_costs_no_body(service: Served, packets: list[bytes], n_asked: int) -> None:
    with connected(service) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for packet in packets:
            connection.sendall(packet)
            time.sleep(0.0005 if len(packet) == 1 else 0.05)
        connection.shutdown(socket.SHUT_WR)
        assert [each for each in responses(connection) if each != b"100"] == [b"200"] * n_asked


def test_what_follows_a_connect_is_not_taken_for_a_request(service: Served) -> None:
    with connected(service) as connection:
        connection.sendall(b"CONNECT /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET % b"")
        assert responses(connection) == [b"405"]
