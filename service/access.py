"""Who may do what: the keys of the data folder, checked on each request and read again when their file changes."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.datastructures import Headers

from service.extras import StartupError
from service.key_file import KeyFile, KeyFileError
from service.key_limits import Usage
from service.keys import ApiKey, Limits, id_in, new_key
from service.metrics import Metrics
from service.problems import KeyAtLimit, KeyMissing, KeyRefused, ScopeMissing
from service.scopes import KeyScope, Needed, permits
from service.settings import Settings
from service.sites import is_loopback

_LOGGER = logging.getLogger(__name__)
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Whoever holds a key, and what they have used."""

    key: ApiKey
    usage: Usage


class Access:
    """The keys of one service; `is_required` says whether requests need one. Once they do, they do to the end."""

    def __init__(
        self,
        file: KeyFile,
        *,
        mode: Literal["auto", "on", "off"],
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the keys; the clock, by which keys expire, gives seconds since 1970, the steady one is never set.

        Raises:
            KeyFileError: their file cannot be used.
        """
        self.is_required = mode == "on"
        self._file, self._mode, self._metrics = file, mode, metrics
        self._clock, self._steady_clock = clock, steady_clock
        self._holders: dict[str, Holder] = {}
        self._nobody = self._holder_of(new_key("nobody", [KeyScope.SEARCH], limits=Limits())[1])
        self._stamp = file.stamp()
        self._refusal: str | None = None
        self._take(file.read())

    @property
    def n_keys(self) -> int:
        """How many keys there are, expired ones included."""
        return len(self._holders)

    def holder(self, headers: Headers) -> Holder:
        """Return who sent a request. An unknown key costs as much time as a known one.

        Raises:
            KeyMissing, KeyRefused: it is not told.
        """
        text = _key_sent(headers)
        key_id = id_in(text)
        if key_id is None:
            raise KeyRefused("This is no whole key: a character is missing or mistyped.")
        holder = self._holders.get(key_id, self._nobody)
        if not holder.key.is_of(text):
            raise KeyRefused("This key is not known here, or it was revoked.")
        if holder.key.is_expired(self._clock()):
            raise KeyRefused("This key has expired.")
        return holder

    def enter(self, holder: Holder, needs: Needed) -> None:
        """Let a request of a holder begin; `holder.usage.leave` must follow.

        Raises:
            ScopeMissing, KeyAtLimit: it may not.
        """
        count = self._metrics.key_requests
        if not permits(holder.key.scopes, needs):
            count.labels(holder.key.name, "scope_missing").inc()
            raise ScopeMissing(needs)
        try:
            holder.usage.enter(self._steady_clock())
        except KeyAtLimit:
            count.labels(holder.key.name, "at_limit").inc()
            raise
        count.labels(holder.key.name, "admitted").inc()

    async def watch(self) -> None:
        """Look at the file every second, until cancelled."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await self.look()
            except Exception:  # whatever it is: a key that is revoked tomorrow must still be noticed
                _LOGGER.error("keys cannot be looked at", exc_info=True)

    async def look(self) -> None:
        """Take over what has changed in the file; where it is damaged the keys before stay, and the log says so."""
        stamp = await asyncio.to_thread(self._file.stamp)  # before reading, so that no change is missed
        if stamp == self._stamp:
            return
        try:
            keys = await asyncio.to_thread(self._file.read)
        except KeyFileError as error:
            self._tell_refusal(str(error))
            return
        self._take(keys)
        self._stamp, self._refusal = stamp, None
        self._metrics.key_file_damaged.set(0)
        _LOGGER.info("keys taken over", extra={"n_keys": self.n_keys})

    def _tell_refusal(self, reason: str) -> None:
        """Log it once, though the file is tried again each time."""
        if reason != self._refusal:
            self._refusal = reason
            self._metrics.key_file_damaged.set(1)
            _LOGGER.error("keys refused", extra={"reason": reason})

    def _take(self, keys: Sequence[ApiKey]) -> None:
        before = self._holders
        self._holders = {}
        for key in keys:
            known = before.get(key.key_id)
            self._holders[key.key_id] = known if known is not None and known.key == key else self._holder_of(key)
        self.is_required = self.is_required or (self._mode == "auto" and bool(keys))
        self._metrics.watch_keys([key.name for key in keys])

    def _holder_of(self, key: ApiKey) -> Holder:
        return Holder(key, Usage(key.limits, self._steady_clock()))


def open_access(settings: Settings, *, metrics: Metrics) -> Access:
    """Return the keys of the configured data folder.

    Raises:
        StartupError: nobody could use the service, since it needs keys and there are none; or their file is damaged.
    """
    stays_here = is_loopback(settings.host)
    mode = "on" if settings.auth == "auto" and not stays_here else settings.auth
    access = Access(KeyFile(settings.data_path), mode=mode, metrics=metrics)
    if access.is_required and access.n_keys == 0:
        why = "TERCET_AUTH is on" if stays_here else f"Other machines can reach {settings.host}"
        raise StartupError(
            f"{why}, and there is no API key in {settings.data_path}: make one with "
            f"`tercet keys create --name NAME --scope search`, or set TERCET_AUTH=off to serve everyone."
        )
    return access


def _key_sent(headers: Headers) -> str:
    """Return the one key in the headers of a request.

    Raises:
        KeyMissing, KeyRefused: there is none, or more than one.
    """
    sent = {value.strip() for value in headers.getlist("x-api-key")}
    for value in headers.getlist("authorization"):
        scheme, _, credentials = value.partition(" ")
        if scheme.lower() == "bearer":
            sent.add(credentials.strip())
    sent.discard("")
    if not sent:
        raise KeyMissing
    if len(sent) > 1:
        raise KeyRefused("Several different keys were sent; send one.")
    return sent.pop()
