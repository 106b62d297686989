"""The ASGI application: routes, problems, page, and what happens when it starts and stops."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import metadata

from fastapi import FastAPI

from service import website
from service.access import open_access
from service.access_examples import with_access
from service.bodies import StrictJsonRoute
from service.client_examples import CLIENT_EXAMPLES
from service.embedding_routes import router as embedding_router
from service.engine import Engine, open_engine
from service.examples import describe
from service.guard import Guard
from service.job_examples import JOB_EXAMPLES
from service.job_routes import router as job_router
from service.jobs import open_jobs
from service.lingering import Lingering
from service.metrics import Metrics
from service.observe import Observe
from service.problem_handlers import install_handlers
from service.rerank_routes import router as rerank_router
from service.routes import router
from service.scopes import require_scopes
from service.settings import Settings
from service.sites import Sites

_LOGGER = logging.getLogger(__name__)

_DESCRIPTION = """Search and question answering over your own documents: retrieve, rerank, read.

Offsets are half-open and count Unicode code points unless a name says `utf16`. Errors are problem documents (RFC 9457);
so are the 404 of a path that is not here and the 405 of another method, which says the right ones in `Allow`.
"""


class Outcome:
    """How loading ended, for whoever runs the application: `failure` is set before `on_end` is called."""

    def __init__(self, on_end: Callable[["Outcome"], None] = lambda outcome: None) -> None:
        self.failure: BaseException | None = None
        self.on_end = on_end


def create_app(settings: Settings, outcome: Outcome | None = None) -> FastAPI:
    """Return the application. It answers probes at once, and requests when models and index are loaded and warm.

    Loading happens in the background of the ASGI lifespan; `outcome` learns how it ended.

    Raises:
        StartupError: the API keys are damaged, or needed and not there.
    """
    app = FastAPI(
        title="Tercet",
        version=metadata.version("tercet"),
        description=_DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        docs_url=None,  # the framework's pages load scripts from another host
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.router.route_class = StrictJsonRoute
    app.state.settings = settings
    app.state.files = website.load_files()
    app.state.metrics = Metrics()
    app.state.access = open_access(settings, metrics=app.state.metrics)
    app.state.outcome = outcome if outcome is not None else Outcome()
    app.state.engine = None
    app.state.jobs = None
    app.state.is_draining = False
    app.state.on_draining = lambda: None
    app.state.metrics.watch_readiness(lambda: is_ready(app))
    for each in (router, rerank_router, embedding_router, job_router, website.router):
        require_scopes(each)
        app.include_router(each)
    app.openapi = lambda: with_access(describe(app, CLIENT_EXAMPLES, JOB_EXAMPLES))  # type: ignore[method-assign]  # the framework's way to extend it
    install_handlers(app)
    app.add_middleware(Guard, access=app.state.access, sites=Sites(settings))
    app.add_middleware(Observe, metrics=app.state.metrics)
    app.add_middleware(Lingering)
    return app


def begin_draining(app: FastAPI) -> None:
    """Refuse new requests from now on; those that run go on, and jobs end.

    This runs in a signal handler, where a lock could be held: so nothing more than a flag, and waking the event loop.
    """
    app.state.is_draining = True
    app.state.on_draining()


def is_ready(app: FastAPI) -> bool:
    """Return whether requests are served."""
    return app.state.engine is not None and not app.state.is_draining


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    draining, ending = asyncio.Event(), asyncio.Event()
    app.state.on_draining = partial(asyncio.get_running_loop().call_soon_threadsafe, draining.set)
    serving = asyncio.create_task(_serve_engine(app, draining=draining, ending=ending))
    serving.add_done_callback(lambda task: _note_failure(app, task))
    watching = asyncio.create_task(app.state.access.watch())
    try:
        yield
    finally:
        watching.cancel()
        begin_draining(app)
        ending.set()
        with suppress(Exception):  # _note_failure has told of it
            await serving


async def _serve_engine(app: FastAPI, *, draining: asyncio.Event, ending: asyncio.Event) -> None:
    """Load the engine, offer it until `ending`, stop it; run jobs meanwhile, until `draining`."""
    settings, metrics = app.state.settings, app.state.metrics
    async with open_jobs(settings, metrics=metrics) as jobs, open_engine(settings, metrics=metrics) as engine:
        app.state.jobs = jobs
        if jobs is not None:
            jobs.start()  # not before the engine is there: a service that cannot start must not use up what waits
        _offer(app, engine)
        await draining.wait()
        if jobs is not None:
            await jobs.stop()
        await ending.wait()
        app.state.engine = app.state.jobs = None


def _offer(app: FastAPI, engine: Engine) -> None:
    app.state.engine = engine
    engine.watch()
    facts = {"index": engine.snapshot.index_name, "snapshot": engine.snapshot.snapshot_id}
    _LOGGER.info("ready", extra=facts | {"n_passages": engine.snapshot.n_passages})
    app.state.outcome.on_end(app.state.outcome)


def _note_failure(app: FastAPI, task: asyncio.Task[None]) -> None:
    failure = None if task.cancelled() else task.exception()
    if failure is not None:
        app.state.outcome.failure = failure
        app.state.outcome.on_end(app.state.outcome)
