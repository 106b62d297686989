"""The web page at `/` and the API description at `/docs`: static files of this package, which load nothing else."""

from pathlib import Path

from fastapi import APIRouter, Request, Response

from service.problems import UnknownRoute

_FOLDER = Path(__file__).parent / "page"

router = APIRouter(include_in_schema=False)

# Only our own files run, style or are called; nothing may be framed, submitted elsewhere or loaded as an object.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def load_files() -> dict[str, bytes]:
    """Return the page's files by name; all that this module ever serves."""
    return {file.name: file.read_bytes() for file in _FOLDER.iterdir() if file.suffix in _MEDIA_TYPES}


@router.get("/")
async def index(request: Request) -> Response:
    """The search page."""
    return _file(request, "index.html")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The API description, drawn from /openapi.json."""
    return _file(request, "docs.html")


@router.get("/page/{name}")
async def static(name: str, request: Request) -> Response:
    """A file of the pages."""
    return _file(request, name)


def _file(request: Request, name: str) -> Response:
    files: dict[str, bytes] = request.app.state.files
    if name not in files:
        raise UnknownRoute
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    return Response(files[name], headers=headers, media_type=_MEDIA_TYPES[Path(name).suffix])
