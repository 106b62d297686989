"""The ASGI layer that lets a request in or not, before a byte of its body is read; `Observe` sends what it raises."""

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.access import Access, Holder
from service.scopes import Needed, asked_route
from service.sites import Sites


class Guard:
    """Checks names, origins and keys; what of it is to be logged and sent goes into `state`."""

    def __init__(self, app: ASGIApp, *, access: Access, sites: Sites) -> None:
        self._app = app
        self._access = access
        self._sites = sites

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request that may be served; anything but HTTP passes through untouched.

        Raises:
            WrongHost, ForeignPage, KeyMissing, KeyRefused, ScopeMissing, KeyAtLimit: it may not.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = asked_route(scope["path"])
        scope["state"]["route"] = route.template
        headers = Headers(scope=scope)
        preflight = self._check_site(scope, headers)
        if preflight is not None:
            await preflight(scope, receive, send)
        elif route.needs == "nothing" or not self._access.is_required:
            await self._app(scope, receive, send)
        else:
            holder = self._access.holder(headers)
            scope["state"]["facts"]["key_id"] = holder.key.key_id
            self._enter(scope, holder, route.needs)
            try:
                await self._app(scope, receive, send)
            finally:
                holder.usage.leave()

    def _check_site(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a browser that asks what an allowed page may send, None for any other request."""
        is_keyless = not self._access.is_required
        if is_keyless:
            self._sites.check_host(headers)
        scope["state"]["headers"].update(self._sites.cors_headers(headers))
        preflight = self._sites.preflight(scope["method"], headers)
        if preflight is not None:
            return Response(status_code=204, headers=preflight)
        if is_keyless:
            self._sites.check_page(scope["method"], headers)
        return None

    def _enter(self, scope: Scope, holder: Holder, needs: Needed) -> None:
        try:
            self._access.enter(holder, needs)
        finally:
            scope["state"]["headers"].update(holder.usage.headers())
