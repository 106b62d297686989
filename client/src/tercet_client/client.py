"""The client for programs that wait: each call returns when its response is there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import httpx

from tercet_client import calls
from tercet_client.calls import Call
from tercet_client.deadline import Patience
from tercet_client.errors import ConnectionFailed, ServerFailed, Timeout
from tercet_client.job_responses import Job
from tercet_client.model_responses import EmbeddingsResponse, RerankResponse
from tercet_client.options import Search
from tercet_client.responses import (
    AnswerResponse,
    Document,
    Health,
    Index,
    Readiness,
    SearchBatchResponse,
    SearchResponse,
)
from tercet_client.terms import BASE_URL, LIMITS, MAX_RETRIES, TIMEOUT_SECONDS, Terms, checked_url, key_headers
from tercet_client.tries import Failure, Outcome, Reply, Tries
from tercet_client.uploads import File, name_of, opened

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tercet_client.options import AnswerOptions, EmbeddingsOptions, JobOptions, RerankOptions, SearchOptions

T = TypeVar("T")


class Client:
    """Calls one service; threads may share it. Close it, or use it in a `with` block.

    Every call takes `timeout`, its whole time in seconds with all tries, instead of the client's; the service is told
    it where it can hurry. Every call raises a TercetError if it fails (`tercet_client.errors`).
    """

    def __init__(
        self,
        base_url: str = BASE_URL,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        max_retries: int = MAX_RETRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect to nothing yet; transport is httpx's, for certificates and proxies of your own.

        Raises:
            ValueError: an argument makes no sense.
        """
        self._terms = Terms(timeout, max_retries)
        self._http = httpx.Client(
            base_url=checked_url(base_url), headers=key_headers(api_key), limits=LIMITS, transport=transport
        )
        self.jobs = Jobs(self)

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def search(self, query: str, *, timeout: float | None = None, **options: Unpack[SearchOptions]) -> SearchResponse:
        """Return the best passages for a query."""
        return self._run(calls.search(query, options), timeout)

    def search_batch(
        self, searches: Sequence[Search], *, index: str | None = None, timeout: float | None = None
    ) -> SearchBatchResponse:
        """Return a page of results for each search, all of one snapshot; all of them succeed, or none does."""
        return self._run(calls.search_batch(searches, index), timeout)

    def answer(self, query: str, *, timeout: float | None = None, **options: Unpack[AnswerOptions]) -> AnswerResponse:
        """Return answers read from the best passages, or from `passages` of your own, or that there is none."""
        return self._run(calls.answer(query, options), timeout)

    def rerank(
        self,
        query: str,
        documents: Sequence[str | Mapping[str, object]],
        *,
        timeout: float | None = None,
        **options: Unpack[RerankOptions],
    ) -> RerankResponse:
        """Return documents of your own, texts or objects with a `text`, by relevance to a query."""
        return self._run(calls.rerank(query, documents, options), timeout)

    def embeddings(
        self, texts: str | Sequence[str], *, timeout: float | None = None, **options: Unpack[EmbeddingsOptions]
    ) -> EmbeddingsResponse:
        """Return the vector of each text; as passages, unless `input_type` says that they are queries."""
        return self._run(calls.embeddings(texts, options), timeout)

    def document(self, document_id: str, *, index: str | None = None, timeout: float | None = None) -> Document:
        """Return a whole document."""
        return self._run(calls.document(document_id, index), timeout)

    def indexes(self, *, timeout: float | None = None) -> tuple[Index, ...]:
        """Return the snapshots that are served."""
        return self._run(calls.indexes(), timeout).indexes

    def health(self, *, timeout: float | None = None) -> Health:
        """Return that the process is alive; asked once, without another try."""
        return self._run(calls.health(), timeout)

    def ready(self, *, timeout: float | None = None) -> Readiness:
        """Return that requests are served, or raise NotReady; asked once, without another try."""
        return self._run(calls.ready(), timeout)

    def wait_until_ready(self, *, timeout: float = 60.0) -> None:
        """Return when requests are served, also if nothing listens yet.

        Raises:
            Timeout: they are not, in that time.
        """
        patience = Patience("The service is not ready", timeout)
        while True:
            try:
                self.ready(timeout=patience.look_seconds(self._terms.timeout))
                return
            except (ConnectionFailed, ServerFailed, Timeout) as error:
                pause = patience.pause(because=error)
            time.sleep(pause)

    def _run(self, call: Call[T], timeout: float | None) -> T:
        tries = self._terms.tries(call, timeout)
        while True:
            outcome = self._try(tries)
            pause = tries.pause_after(outcome)
            if pause is None:
                return tries.result(outcome)
            time.sleep(pause)

    def _try(self, tries: Tries[T]) -> Outcome:
        upload, has_begun, content = tries.call.upload, False, bytearray()
        request = tries.request(self._http, None if upload is None else upload.pieces())
        try:
            with closing(self._http.send(request, stream=True)) as response:
                has_begun = True
                for piece in response.iter_bytes():
                    content += piece
                    tries.require_time()
        except httpx.RequestError as error:
            return Failure(error, has_begun)
        return Reply(response.status_code, response.headers, bytes(content))


class Jobs:
    """Builds of indexes while the service serves. A job runs on when its client leaves."""

    def __init__(self, client: Client) -> None:
        """Use a client's connections."""
        self._client = client

    def submit(self, source: str, *, timeout: float | None = None, **options: Unpack[JobOptions]) -> Job:
        """Have an index built of a file or folder that the service can read, and return the job that waits or runs.

        It is tried again only if it was surely not taken.
        """
        return self._client._run(calls.submit_job(source, options), timeout)

    def upload(
        self, file: File, *, file_name: str | None = None, timeout: float | None = None, **options: Unpack[JobOptions]
    ) -> Job:
        """Have an index built of a file, a path or open in binary mode, and return the job that waits or runs.

        It is sent as it is read. Without a timeout it takes as long as it takes, unless the service falls silent. It
        is tried again only if it was surely not taken, and can be read again.
        """
        name = name_of(file) if file_name is None else file_name
        with opened(file) as upload:
            return self._client._run(calls.upload_job(upload, name, options), timeout)

    def list(self, *, limit: int = 50, timeout: float | None = None) -> tuple[Job, ...]:
        """Return the newest jobs, the newest first."""
        return self._client._run(calls.list_jobs(limit), timeout).jobs

    def get(self, job_id: str, *, timeout: float | None = None) -> Job:
        """Return a job as it stands."""
        return self._client._run(calls.get_job(job_id), timeout)

    def cancel(self, job_id: str, *, timeout: float | None = None) -> Job:
        """Return the job when it is cancelled, which takes seconds if it runs; Conflict if it ended otherwise."""
        return self._client._run(calls.cancel_job(job_id), timeout)

    def wait(
        self, job_id: str, *, timeout: float = math.inf, on_change: Callable[[Job], object] = lambda job: None
    ) -> Job:
        """Return a job when it is over, however it ended; on_change is called with it whenever it has changed.

        A call that fails ends the waiting, but not the job: wait again.

        Raises:
            Timeout: it is not over in that time.
        """
        patience = Patience("The job is not over", timeout)
        last = None
        while True:
            try:
                job = self.get(job_id, timeout=patience.look_seconds(self._client._terms.timeout))
            except Timeout as error:
                patience.pause(error)  # if it was this waiting that ran out, say so
                raise
            if job != last:
                on_change(job)
            if job.is_over:
                return job
            last = job
            time.sleep(patience.pause())
