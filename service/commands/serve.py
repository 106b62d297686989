"""`tercet serve`: the HTTP service; without what reads documents, which costs a start a quarter of a second."""

from service.logs import configure_logging
from service.server import serve
from service.settings import Settings


def serve_index(settings: Settings) -> None:
    """Serve the configured index until a signal.

    Raises:
        StartupError: the address is taken, or a model or the index cannot be used.
    """
    configure_logging(settings.log_level)
    serve(settings)
