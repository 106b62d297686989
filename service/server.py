"""Run the application in a server process: bind, serve, drain on SIGTERM; one sentence if it cannot start."""

import logging
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from indexer.errors import IndexerError
from models.errors import ModelError
from service.app import Outcome, begin_draining, create_app
from service.commands.faults import explanation
from service.connections import BoundedProtocol
from service.extras import StartupError, check_extras
from service.machine import share_heap
from service.settings import Settings
from service.sites import resolved

_LOGGER = logging.getLogger(__name__)


class DrainingServer(uvicorn.Server):
    """A server that, on SIGTERM, refuses new requests for drain_seconds and then ends; on SIGINT it ends at once.

    uvicorn's own way raises the signal again at the end, so that the exit code would be that of a kill.
    """

    def __init__(self, config: uvicorn.Config, *, app: FastAPI, drain_seconds: float) -> None:
        """Wrap an application that `create_app` made."""
        super().__init__(config)
        self._app = app
        self._drain_seconds = drain_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; a second signal ends at once."""
        if self._app.state.is_draining or sig == signal.SIGINT:
            self.force_exit = self.should_exit
            self.should_exit = True
        else:
            timer = threading.Timer(self._drain_seconds, self.exit_soon)
            timer.daemon = True
            timer.start()
        begin_draining(self._app)

    def exit_soon(self) -> None:
        """Close the socket and end when running requests have."""
        self.should_exit = True


def serve(settings: Settings, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until a signal; `on_ready` is called once, with the address, when requests are answered.

    Raises:
        StartupError: the address is taken, keys are needed and not there, a model or the index cannot be used, or an
            extra is missing.
        Exception: a fault of ours while loading.
    """
    check_extras()
    share_heap()
    server: DrainingServer | None = None

    def on_end(outcome: Outcome) -> None:
        if outcome.failure is not None and server is not None:
            server.exit_soon()
        elif on_ready is not None:
            on_ready(address)

    outcome = Outcome(on_end)
    app = create_app(settings, outcome)
    listening = bind(settings.host, settings.port)
    address = _address(settings.host, listening.getsockname()[1])
    server = DrainingServer(http_config(app, settings), app=app, drain_seconds=settings.drain_seconds)
    _LOGGER.info("listening", extra={"address": address, "needs_key": app.state.access.is_required})
    server.run(sockets=[listening])
    _raise_failure(outcome)


def http_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Return how an application that `create_app` made speaks HTTP; it speaks no other protocol."""
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
    )


def _raise_failure(outcome: Outcome) -> None:
    match outcome.failure:
        case None:
            return
        case StartupError() | ModelError() | IndexerError():
            raise StartupError(explanation(outcome.failure)) from outcome.failure
        case _:
            raise outcome.failure


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the address; port 0 takes a free one.

    Raises:
        StartupError: it is taken, not ours, or not allowed.
    """
    family, kind, protocol, _, address = resolved(host, port)[0]
    try:
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StartupError(f"Cannot listen on {host}: {error.strerror}.") from None
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise StartupError(
            f"Cannot listen on {host} port {port}: {error.strerror}; choose another with TERCET_PORT."
        ) from None
    return listening


def _address(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
