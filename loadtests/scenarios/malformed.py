"""Malformed requests by a seed: HTTP that is none, JSON that is none, and JSON that says what no request may.

Each carries MARK, as what a user typed; none of it may be found in a log. Repeated names are no fault of themselves
(the last counts), so theirs ends with a value that does not fit.
"""

import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MARK = "zqxUserText"
ROUTES = (
    "/v1/search",
    "/v1/answer",
    "/v1/search/batch",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/embeddings",
    "/embed",
)


@dataclass(frozen=True, slots=True)
class Malformed:
    """A request as it is sent: pieces of bytes, then the end of sending if that is so.

    A status of 4xx answers it; is_http says that nothing else will do, else the connection may also just be closed.
    """

    kind: str
    content: bytes
    is_http: bool = True
    ends: bool = False


def request(body: bytes, *headers: str, method: str = "POST", path: str = "/v1/search") -> bytes:
    """Return the bytes of a request that is whole; a Content-Type and a length stand in it unless headers say them."""
    said = {header.partition(":")[0].lower() for header in headers}
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    if "content-type" not in said:
        lines.append("Content-Type: application/json")
    if not said & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _query(dice: random.Random) -> str:
    return f"{MARK} {dice.randint(0, 1 << 30)}"


def _not_http(dice: random.Random) -> Malformed:
    line = dice.choice(
        [
            f"{MARK}\r\n\r\n",
            f"GET\r\n{MARK}\r\n\r\n",
            f"GET /{MARK} HTTP/9.9\r\n\r\n",
            f"{MARK} / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            f"POST /v1/search HTTP/1.1\r\nHost 127.0.0.1 {MARK}\r\n\r\n",
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {MARK}\r\n\r\n",
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{MARK}\x00: 1\r\n\r\n",
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: {MARK}\r\nContent-Length: 3\r\n\r\nabc",
            f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{MARK}",
        ]
    )
    return Malformed("not HTTP", line.encode("latin-1"), is_http=False, ends=True)


def _noise(dice: random.Random) -> Malformed:
    return Malformed("noise", dice.randbytes(dice.randint(1, 2000)) + b"\r\n\r\n", is_http=False, ends=True)


def _tls(dice: random.Random) -> Malformed:
    return Malformed(
        "TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(64), is_http=False, ends=True
    )


def _cut_off(dice: random.Random) -> Malformed:
    whole = request(_json({"query": _query(dice)}))
    return Malformed("cut off", whole[: dice.randint(1, len(whole) - 1)], is_http=False, ends=True)


def _bad_chunks(dice: random.Random) -> Malformed:
    chunks = dice.choice([f"{MARK}\r\n", f"5\r\n{MARK}\r\n", "-1\r\n\r\n", "fffffffffffffffff\r\n"])
    content = request(chunks.encode(), "Transfer-Encoding: chunked")
    return Malformed("bad chunks", content, is_http=False, ends=True)


def _broken_json(dice: random.Random) -> Malformed:
    whole = _json({"query": _query(dice), "top_k": 3, "explain": False})
    place = dice.randrange(1, len(whole) - 1)
    broken = dice.choice([whole[:place], whole + whole, whole.replace(b":", b"=", 1), b"'" + whole, b"{" + whole, b""])
    return Malformed("broken JSON", request(broken, path=dice.choice(ROUTES)))


def _not_an_object(dice: random.Random) -> Malformed:
    body = dice.choice([_json(_query(dice)), _json([_query(dice)]), b"null", b"true", b"-0", b"[[[]]]"])
    return Malformed("no object", request(body, path=dice.choice(ROUTES)))


def _charset(dice: random.Random) -> Malformed:
    codec = dice.choice(["utf-16", "utf-32", "latin-1", "utf-16-le"])
    body = json.dumps({"query": _query(dice) + " caf\xe9"}, ensure_ascii=False).encode(codec)
    header = dice.choice([f"Content-Type: application/json; charset={codec}", "Content-Type: application/json"])
    return Malformed("wrong charset", request(body, header, path=dice.choice(ROUTES)))


def _deep(dice: random.Random) -> Malformed:
    depth = dice.choice([100, 1_000, 100_000])
    inner = b"[" * depth + b"]" * depth if dice.random() < 0.5 else b'{"and":[' * depth + b"1" + b"]}" * depth
    body = b'{"query":"' + _query(dice).encode() + b'","filter":' + inner + b"}"
    return Malformed("deep nesting", request(body))


def _number(dice: random.Random) -> Malformed:
    number = dice.choice(
        [
            "NaN",
            "Infinity",
            "-Infinity",
            "1e999",
            "-1e999",
            "9" * 400,
            "1" + "0" * 5000,
            "-1",
            "0.5",
            "1e30",
            "2147483648",
        ]
    )
    field = dice.choice(["top_k", "rerank_k", "retrieve_k", "offset", "timeout_ms"])
    body = f'{{"query":"{_query(dice)}","{field}":{number}}}'.encode()
    return Malformed("NaN or huge number", request(body))


def _surrogate(dice: random.Random) -> Malformed:
    text = dice.choice(['"\\ud800', '"\\udfff\\ud800', '"\\ud83d\\ud83d'])
    raw = dice.choice([b'"\xed\xa0\x80', b'"\xff\xfe', b'"\xc0\xaf', text.encode()])
    return Malformed("lone surrogate", request(b'{"query":' + raw + _query(dice).encode() + b'"}', path="/v1/answer"))


def _repeated(dice: random.Random) -> Malformed:
    last = dice.choice(["5", "null", "[]", '""', '{"a":1}'])
    body = f'{{"query":"{_query(dice)}","top_k":3,"top_k":4,"query":{last}}}'.encode()
    return Malformed("repeated name", request(body, path=dice.choice(["/v1/search", "/v1/answer"])))


def _wrong_field(dice: random.Random) -> Malformed:
    text = _query(dice)
    wrong: dict[str, object] = dice.choice(
        [
            {MARK: 1}, {"query": 7}, {"query": " "}, {"query": text * 1000}, {"top_k": "3"}, {"mode": text},
            {"rerank": "yes"}, {"filter": {MARK: {"$gt": text}}}, {"filter": text}, {"highlight": 1}, {"index": text},
            {"facets": [text] * 100}, {"timeout_ms": True},
        ]
    )  # fmt: skip
    return Malformed("wrong field", request(_json({"query": text, **wrong})))


def _method(dice: random.Random) -> Malformed:
    method = dice.choice(["GET", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "SEARCH", "OPTIONS", "M-SEARCH"])
    content = request(_json({"query": _query(dice)}), method=method, path=dice.choice(ROUTES))
    return Malformed("wrong method", content, is_http=method != "M-SEARCH")


def _content_type(dice: random.Random) -> Malformed:
    kind = dice.choice(
        ["text/plain", "application/xml", "multipart/form-data; boundary=x", f"{MARK}/{MARK}", "", "\xe9"]
    )
    return Malformed("wrong content type", request(_json({"query": _query(dice)}), f"Content-Type: {kind}"))


def _bomb(dice: random.Random) -> Malformed:
    body = gzip.compress(b'{"query":"' + MARK.encode() + b" " * dice.choice([1, 5, 20]) * 1_000_000 + b'"}', mtime=0)
    encoding = dice.choice(["gzip", "deflate", "br", "gzip, gzip", "identity, gzip"])
    return Malformed("compressed", request(body, f"Content-Encoding: {encoding}", path=dice.choice(ROUTES)))


def _bomb_unsaid(dice: random.Random) -> Malformed:
    return Malformed("compressed, unsaid", request(gzip.compress(b" " * dice.randint(1, 2_000_000), mtime=0)))


def _huge_header(dice: random.Random) -> Malformed:
    length = dice.choice([100_000, 400_000, 1_000_000])
    header = dice.choice([f"X-Text: {MARK}{'a' * length}", "\r\n".join(f"X-{i}: {MARK}" for i in range(length // 20))])
    return Malformed("huge headers", request(_json({"query": _query(dice)}), header))


def _long_path(dice: random.Random) -> Malformed:
    path = f"/{MARK}/{'a' * dice.choice([10, 100_000])}" if dice.random() < 0.5 else f"/v1/documents/{MARK}%00%ff"
    return Malformed("unknown path", request(b"", method="GET", path=path))


def _large(dice: random.Random) -> Malformed:
    announced = dice.choice([5_000_000, 1 << 40, (1 << 63) - 1])
    return Malformed("announced as too large", request(b"{", f"Content-Length: {announced}"), ends=True, is_http=False)


def _upgrade(dice: random.Random) -> Malformed:
    headers = ["Connection: Upgrade", f"Upgrade: {dice.choice(['websocket', MARK])}", "Sec-WebSocket-Version: 13"]
    headers += dice.choice([[], [f"Sec-WebSocket-Key: {MARK}"], ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]])
    content = request(b"", *headers, method="GET", path=dice.choice(["/v1/search", f"/{MARK}"]))
    return Malformed("upgrade", content)


def _smuggled(dice: random.Random) -> Malformed:
    body = _json({"query": _query(dice)})
    headers = dice.choice(
        [
            (f"Content-Length: {len(body)}", "Content-Length: 3"),
            ("Transfer-Encoding: chunked", f"Content-Length: {len(body)}"),
            ("Content-Length: -5",),
            ("Content-Length: +5",),
            ("Transfer-Encoding: chunked, identity",),
        ]
    )
    return Malformed("two lengths", request(body, *headers), is_http=False, ends=True)


MAKERS: tuple[Callable[[random.Random], Malformed], ...] = (
    _not_http, _noise, _tls, _cut_off, _bad_chunks, _broken_json, _not_an_object, _charset, _deep, _number, _surrogate,
    _repeated, _wrong_field, _method, _content_type, _bomb, _bomb_unsaid, _huge_header, _long_path, _large, _upgrade,
    _smuggled,
)  # fmt: skip


def malformed_requests(n: int, *, seed: int) -> Iterator[Malformed]:
    """Yield n of them, all kinds in turn; the same seed gives the same ones."""
    dice = random.Random(seed)  # noqa: S311 - nothing here is a secret
    for i in range(n):
        yield MAKERS[i % len(MAKERS)](dice)


def fault_of(sent: Malformed, status: int | None) -> str | None:
    """Return what is wrong with an answer, None for nothing; a status of None is a connection that was closed."""
    if status is None:
        return f"{sent.kind}: closed without an answer" if sent.is_http else None
    return None if 400 <= status < 500 else f"{sent.kind}: answered with {status}"
