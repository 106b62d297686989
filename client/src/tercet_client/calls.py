"""What each method of the clients sends and gets back, without sending it: the one home of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar
from urllib.parse import quote

from tercet_client.job_responses import Job, JobList
from tercet_client.model_responses import EmbeddingsResponse, RerankResponse
from tercet_client.options import AnswerOptions, EmbeddingsOptions, JobOptions, RerankOptions, Search, SearchOptions
from tercet_client.responses import (
    AnswerResponse,
    Document,
    Health,
    Indexes,
    Readiness,
    SearchBatchResponse,
    SearchResponse,
)
from tercet_client.uploads import Upload

T = TypeVar("T")

Repeat: TypeAlias = Literal["always", "if_not_taken", "never"]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and the class of its response.

    has_deadline says that the body takes `timeout_ms`, so that the service gives up when its caller does. repeat says
    whether it may be sent again after a failure that can pass: a job, which must not be built twice, only if the first
    was surely not taken.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    returns: type[T]
    body: Mapping[str, object] | None = None
    upload: Upload | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    has_deadline: bool = False
    repeat: Repeat = "always"

    @property
    def can_be_made_twice(self) -> bool:
        """Whether a second one changes nothing: only the posting of a job does."""
        return self.repeat == "always" or self.method == "GET"


def search(query: str, options: SearchOptions) -> Call[SearchResponse]:
    """Search the index."""
    body = {"query": query} | _given(options)
    return Call("POST", "/v1/search", SearchResponse, body, has_deadline=True)


def search_batch(searches: Sequence[Search], index: str | None) -> Call[SearchBatchResponse]:
    """Search for several queries, over one snapshot."""
    body = {"searches": [_given(each) for each in searches]} | _given({"index": index})
    return Call("POST", "/v1/search/batch", SearchBatchResponse, body, has_deadline=True)


def answer(query: str, options: AnswerOptions) -> Call[AnswerResponse]:
    """Answer a question."""
    body = {"query": query} | _given(options)
    return Call("POST", "/v1/answer", AnswerResponse, body, has_deadline=True)


def rerank(query: str, documents: Sequence[str | Mapping[str, object]], options: RerankOptions) -> Call[RerankResponse]:
    """Rank documents of the caller's."""
    body = {"query": query, "documents": list(documents)} | _given(options)
    return Call("POST", "/v1/rerank", RerankResponse, body)


def embeddings(texts: str | Sequence[str], options: EmbeddingsOptions) -> Call[EmbeddingsResponse]:
    """Encode texts of the caller's."""
    body = {"input": texts if isinstance(texts, str) else list(texts)} | _given(options)
    return Call("POST", "/v1/embeddings", EmbeddingsResponse, body)


def document(document_id: str, index: str | None) -> Call[Document]:
    """Get a document."""
    query = {} if index is None else {"index": index}
    return Call("GET", f"/v1/documents/{_path(document_id)}", Document, query=query)


def indexes() -> Call[Indexes]:
    """List the indexes."""
    return Call("GET", "/v1/indexes", Indexes)


def health() -> Call[Health]:
    """Ask whether the process is alive."""
    return Call("GET", "/healthz", Health, repeat="never")


def ready() -> Call[Readiness]:
    """Ask whether requests are served."""
    return Call("GET", "/readyz", Readiness, repeat="never")


def submit_job(source: str, options: JobOptions) -> Call[Job]:
    """Build an index of what the service can read."""
    body = {"source": source} | _given(options)
    return Call("POST", "/v1/jobs", Job, body, repeat="if_not_taken")


def upload_job(upload: Upload, file_name: str, options: JobOptions) -> Call[Job]:
    """Build an index of a file."""
    query = {"file_name": file_name} | {name: _parameter(value) for name, value in _given(options).items()}
    repeat: Repeat = "if_not_taken" if upload.can_repeat else "never"
    return Call("POST", "/v1/jobs/upload", Job, upload=upload, query=query, repeat=repeat)


def list_jobs(limit: int) -> Call[JobList]:
    """List the jobs."""
    return Call("GET", "/v1/jobs", JobList, query={"limit": str(limit)})


def get_job(job_id: str) -> Call[Job]:
    """Get a job."""
    return Call("GET", f"/v1/jobs/{_path(job_id)}", Job)


def cancel_job(job_id: str) -> Call[Job]:
    """Cancel a job."""
    return Call("DELETE", f"/v1/jobs/{_path(job_id)}", Job)


def _given(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _parameter(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _path(identity: str) -> str:
    """Return an id as part of a path: its slashes stay, and `.` and `..` between them are kept from being resolved."""
    parts = quote(identity, safe="/", errors="surrogatepass").split("/")
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in parts)
