"""The client for asyncio. Cancelling a call closes its connection, which ends its work on the service."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
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


class AsyncClient:
    """As `Client`, for one event loop of asyncio and `async with`."""

    def __init__(
        self,
        base_url: str = BASE_URL,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        max_retries: int = MAX_RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """As `Client`; transport is httpx's for asyncio."""
        self._terms = Terms(timeout, max_retries)
        self._http = httpx.AsyncClient(
            base_url=checked_url(base_url), headers=key_headers(api_key), limits=LIMITS, transport=transport
        )
        self.jobs = AsyncJobs(self)

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """As `Client.close`."""
        await self._http.aclose()

    async def search(
        self, query: str, *, timeout: float | None = None, **options: Unpack[SearchOptions]
    ) -> SearchResponse:
        """As `Client.search`."""
        return await self._run(calls.search(query, options), timeout)

    async def search_batch(
        self, searches: Sequence[Search], *, index: str | None = None, timeout: float | None = None
    ) -> SearchBatchResponse:
        """As `Client.search_batch`."""
        return await self._run(calls.search_batch(searches, index), timeout)

    async def answer(
        self, query: str, *, timeout: float | None = None, **options: Unpack[AnswerOptions]
    ) -> AnswerResponse:
        """As `Client.answer`."""
        return await self._run(calls.answer(query, options), timeout)

    async def rerank(
        self,
        query: str,
        documents: Sequence[str | Mapping[str, object]],
        *,
        timeout: float | None = None,
        **options: Unpack[RerankOptions],
    ) -> RerankResponse:
        """As `Client.rerank`."""
        return await self._run(calls.rerank(query, documents, options), timeout)

    async def embeddings(
        self, texts: str | Sequence[str], *, timeout: float | None = None, **options: Unpack[EmbeddingsOptions]
    ) -> EmbeddingsResponse:
        """As `Client.embeddings`."""
        return await self._run(calls.embeddings(texts, options), timeout)

    async def document(self, document_id: str, *, index: str | None = None, timeout: float | None = None) -> Document:
        """As `Client.document`."""
        return await self._run(calls.document(document_id, index), timeout)

    async def indexes(self, *, timeout: float | None = None) -> tuple[Index, ...]:
        """As `Client.indexes`."""
        return (await self._run(calls.indexes(), timeout)).indexes

    async def health(self, *, timeout: float | None = None) -> Health:
        """As `Client.health`."""
        return await self._run(calls.health(), timeout)

    async def ready(self, *, timeout: float | None = None) -> Readiness:
        """As `Client.ready`."""
        return await self._run(calls.ready(), timeout)

    async def wait_until_ready(self, *, timeout: float = 60.0) -> None:
        """As `Client.wait_until_ready`."""
        patience = Patience("The service is not ready", timeout)
        while True:
            try:
                await self.ready(timeout=patience.look_seconds(self._terms.timeout))
                return
            except (ConnectionFailed, ServerFailed, Timeout) as error:
                pause = patience.pause(because=error)
            await asyncio.sleep(pause)

    async def _run(self, call: Call[T], timeout: float | None) -> T:
        tries = self._terms.tries(call, timeout)
        while True:
            outcome = await self._try(tries)
            pause = tries.pause_after(outcome)
            if pause is None:
                return tries.result(outcome)
            await asyncio.sleep(pause)

    async def _try(self, tries: Tries[T]) -> Outcome:
        upload, has_begun, content = tries.call.upload, False, bytearray()
        request = tries.request(self._http, None if upload is None else upload.pieces_async())
        try:
            async with aclosing(await self._http.send(request, stream=True)) as response:
                has_begun = True
                async for piece in response.aiter_bytes():
                    content += piece
                    tries.require_time()
        except httpx.RequestError as error:
            return Failure(error, has_begun)
        return Reply(response.status_code, response.headers, bytes(content))


class AsyncJobs:
    """Builds of indexes while the service serves. A job runs on when its client leaves."""

    def __init__(self, client: AsyncClient) -> None:
        """Use a client's connections."""
        self._client = client

    async def submit(self, source: str, *, timeout: float | None = None, **options: Unpack[JobOptions]) -> Job:
        """As `Jobs.submit`."""
        return await self._client._run(calls.submit_job(source, options), timeout)

    async def upload(
        self, file: File, *, file_name: str | None = None, timeout: float | None = None, **options: Unpack[JobOptions]
    ) -> Job:
        """As `Jobs.upload`."""
        name = name_of(file) if file_name is None else file_name
        with opened(file) as upload:
            return await self._client._run(calls.upload_job(upload, name, options), timeout)

    async def list(self, *, limit: int = 50, timeout: float | None = None) -> tuple[Job, ...]:
        """As `Jobs.list`."""
        return (await self._client._run(calls.list_jobs(limit), timeout)).jobs

    async def get(self, job_id: str, *, timeout: float | None = None) -> Job:
        """As `Jobs.get`."""
        return await self._client._run(calls.get_job(job_id), timeout)

    async def cancel(self, job_id: str, *, timeout: float | None = None) -> Job:
        """As `Jobs.cancel`."""
        return await self._client._run(calls.cancel_job(job_id), timeout)

    async def wait(
        self, job_id: str, *, timeout: float = math.inf, on_change: Callable[[Job], object] = lambda job: None
    ) -> Job:
        """As `Jobs.wait`."""
        patience = Patience("The job is not over", timeout)
        last = None
        while True:
            try:
                job = await self.get(job_id, timeout=patience.look_seconds(self._client._terms.timeout))
            except Timeout as error:
                patience.pause(error)  # if it was this waiting that ran out, say so
                raise
            if job != last:
                on_change(job)
            if job.is_over:
                return job
            last = job
            await asyncio.sleep(patience.pause())
