"""Under which names this service answers, and what pages of other sites may ask of it.

A service without keys trusts whoever reaches it, and a browser on its machine reaches loopback for any page that is
open there. So such a service answers under its own names only (a page could let its name point to 127.0.0.1) and does
nothing that a page of another site asks for. With keys there is nothing to guard: no browser sends one unasked.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, TypeAlias

from starlette.datastructures import Headers

from service.extras import StartupError
from service.problems import ForeignPage, WrongHost
from service.settings import Settings, listed

_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<name>[^\s:/@\[\]]+))(?::[0-9]*)?")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({"same-origin", "none"})  # what Sec-Fetch-Site says of our page, and of an address typed in

_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, X-API-Key, X-Request-ID",
    "Access-Control-Max-Age": "600",
}
_EXPOSED = "Location, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-ID"

Address: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]


def resolved(host: str, port: int) -> Sequence[Address]:
    """Return the addresses to listen on, at least one.

    Raises:
        StartupError: the name is unknown.
    """
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise StartupError(f"Cannot listen on {host}: {error.strerror}.") from None


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches who listens there; raises as `resolved`."""
    return all(_is_loopback_address(address[0]) for *_, address in resolved(host, 0))


class Sites:
    """The names and origins of one service."""

    def __init__(self, settings: Settings) -> None:
        self._is_loopback = is_loopback(settings.host)
        self._names = {"localhost", settings.host.lower(), *listed(settings.allowed_hosts)}
        self._origins = frozenset(listed(settings.cors_origins))

    def check_host(self, headers: Headers) -> None:
        """Return if a request was sent to a name of this service.

        Beyond loopback every IP address will do: a page cannot let one point elsewhere.

        Raises:
            WrongHost: it was not.
        """
        name = _host_name(headers)
        if name is None or not (name in self._names or self._is_address(name)):
            raise WrongHost("The header Host has another name; TERCET_ALLOWED_HOSTS lists more that are answered.")

    def check_page(self, method: str, headers: Headers) -> None:
        """Return unless a page of a site that is not allowed asks for more than to be shown something.

        Raises:
            ForeignPage: it does.
        """
        if method in _SAFE_METHODS:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if site in _OWN_SITE or origin in self._origins or (site is None and _is_own(origin, headers)):
            return
        raise ForeignPage("TERCET_CORS_ORIGINS lists the origins whose pages may.")

    def cors_headers(self, headers: Headers) -> Mapping[str, str]:
        """Return what lets a page of an allowed origin read the response."""
        if not self._origins:
            return {}
        origin = headers.get("origin")
        if origin not in self._origins:
            return {"Vary": "Origin"}
        return {"Vary": "Origin", "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _EXPOSED}

    def preflight(self, method: str, headers: Headers) -> Mapping[str, str] | None:
        """Return the headers that tell a browser what a page of an allowed origin may send, None if it asks no such."""
        is_asked = method == "OPTIONS" and "access-control-request-method" in headers
        return _PREFLIGHT if is_asked and headers.get("origin") in self._origins else None

    def _is_address(self, name: str) -> bool:
        return _is_loopback_address(name) if self._is_loopback else _is_ip_address(name)


def _host_name(headers: Headers) -> str | None:
    """Return the name without its port, None unless there is exactly one."""
    sent = headers.getlist("host")
    found = _HOST.fullmatch(sent[0]) if len(sent) == 1 else None
    if found is None:
        return None
    return (found["ipv6"] or found["name"]).lower().rstrip(".")


def _is_own(origin: str | None, headers: Headers) -> bool:
    """Return whether no browser asks, or our page in one that says no more; it was loaded under this Host."""
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback_address(name: str) -> bool:
    return _is_ip_address(name) and ip_address(name).is_loopback
