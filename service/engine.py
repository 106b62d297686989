"""Models, one snapshot and their batchers: everything that answers requests, for the HTTP service and in process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from indexer.snapshot import Snapshot
from models.cross_encoder import CrossEncoder
from models.dual_encoder import DualEncoder
from models.folder import open_model_folder
from models.reader import Reader, SpanLogits
from models.session import Runtime, available_cpus
from models.tokenization import ModelInput
from service.admission import Admission, Cost
from service.batcher import MicroBatcher
from service.metrics import Metrics
from service.problems import UnknownIndex
from service.query_cache import QueryCache, QueryVector, Vector
from service.serving import ServedSnapshot, Watcher, watch_files
from service.settings import Settings
from service.stages import Deadline

Output = TypeVar("Output")

_BATCHES_IN_FLIGHT = 2  # of a model
_WARM_UP_TEXT = "warm " * 400  # more than any window holds, so that the longest input has run once


@dataclass(frozen=True, slots=True)
class Models:
    """The three models of the request path."""

    dual_encoder: DualEncoder
    cross_encoder: CrossEncoder
    reader: Reader

    def engines(self) -> dict[str, str]:
        """Return what runs each model, by the model's kind."""
        models = (self.dual_encoder, self.cross_encoder, self.reader)
        return {model.folder.settings.kind.replace("-", "_"): model.engine for model in models}


def load_models(settings: Settings) -> Models:
    """Load and verify the configured models; blocks for about a second.

    Raises:
        ModelError: a folder cannot be used, or the device is not there.
    """
    runtime = model_runtime(settings)
    return Models(
        DualEncoder(open_model_folder(settings.dual_encoder, "dual-encoder"), runtime),
        CrossEncoder(open_model_folder(settings.cross_encoder, "cross-encoder"), runtime),
        Reader(open_model_folder(settings.reader, "reader"), runtime),
    )


def open_snapshot(settings: Settings, models: Models) -> Snapshot:
    """Open and verify the configured index.

    Raises:
        SnapshotError: it is missing, altered, or made for another encoder.
        DeviceError: a GPU was asked for and is not there.
    """
    encoder = models.dual_encoder
    snapshot = Snapshot.open(
        settings.data_path / settings.index, encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension
    )
    if settings.device == "cuda":
        snapshot.move_to_gpu()
    return snapshot


def model_runtime(settings: Settings) -> Runtime:
    """Return where and how the models run."""
    n_threads = settings.n_threads if settings.n_threads > 0 else available_cpus()
    return Runtime(n_threads, settings.device, settings.engine)


class Engine:
    """Answers requests between `start` and `stop`, on one event loop."""

    def __init__(
        self, settings: Settings, *, models: Models, snapshot: Snapshot, metrics: Metrics | None = None
    ) -> None:
        self.settings = settings
        self.models = models
        self._served = ServedSnapshot(snapshot)
        self._watching: list[asyncio.Task[None]] = []
        self.metrics = metrics if metrics is not None else Metrics()
        self.encoding: MicroBatcher[ModelInput, Vector] = self._batcher("dual_encoder", self._encode)
        self.reranking: MicroBatcher[ModelInput, float] = self._batcher("cross_encoder", self._rerank)
        self.reading: MicroBatcher[ModelInput, SpanLogits] = self._batcher("reader", models.reader.run)
        self.cache = QueryCache(settings.cache_bytes, self.metrics)
        self.tokens_to_read = 0  # of all answers under way
        self.read_share = 1.0  # of the candidates to rerank, in the last searches that might stop early
        self.admission = Admission(
            settings.max_admitted_tokens, tokens_per_second=self._tokens_per_second, refused=self.metrics.refused
        )

    def _batcher(
        self, model: str, run: Callable[[Sequence[ModelInput]], Sequence[Output]]
    ) -> MicroBatcher[ModelInput, Output]:
        return MicroBatcher(
            run,
            cost=_tokens,
            max_batch_tokens=self.settings.batch_tokens_per_thread * model_runtime(self.settings).n_threads,
            observer=self.metrics.queue(model),
            n_in_flight=_BATCHES_IN_FLIGHT,
        )

    async def start(self) -> None:
        """Run every model and both legs of retrieval once, then start the batchers."""
        await asyncio.to_thread(self._warm)
        for batcher in (self.encoding, self.reranking, self.reading):
            batcher.start()
        self.metrics.watch_queues(
            {"dual_encoder": self.encoding, "cross_encoder": self.reranking, "reader": self.reading}
        )
        self.metrics.watch_engines(self.models.engines())
        self.metrics.watch_admission(lambda: self.admission.tokens)
        self._say_what_is_served()

    def watch(self) -> None:
        """Take over each snapshot of the index that is made current from now on; tell when files of it are damaged."""
        seconds = self.settings.snapshot_poll_seconds
        looking = watch_files(self._served, seconds, self.metrics.snapshot_damaged.set)
        self._watching = [asyncio.create_task(self._watch()), asyncio.create_task(looking)]

    async def stop(self) -> None:
        """Fail whatever waits, let running batches end, close the snapshot."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(self.encoding.stop(), self.reranking.stop(), self.reading.stop())
        self._served.close()

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that is current now; a request borrows it instead."""
        return self._served.current

    @contextmanager
    def borrowed(self, index: str | None) -> Iterator[Snapshot]:
        """Give the snapshot of an index, None standing for the configured one; it stays open meanwhile.

        Raises:
            UnknownIndex: this service does not serve it.
        """
        if index is not None and index != self.snapshot.index_name:
            raise UnknownIndex(f"This service serves no index of that name; it serves {self.snapshot.index_name!r}.")
        with self._served.borrowed() as snapshot:
            yield snapshot

    def _say_what_is_served(self) -> None:
        snapshot = self.snapshot
        self.cache.serve(snapshot.snapshot_id)
        self.metrics.watch_index(
            index=snapshot.index_name, snapshot=snapshot.snapshot_id, n_passages=snapshot.n_passages
        )

    async def _watch(self) -> None:
        watcher = Watcher(self.settings.data_path / self.settings.index, self._open_warm, self._swap)
        swaps = self.metrics.snapshot_swaps
        await watcher.run(
            self.settings.snapshot_poll_seconds, lambda: self.snapshot.snapshot_id, swaps.labels("refused").inc
        )

    def _open_warm(self) -> Snapshot:
        snapshot = open_snapshot(self.settings, self.models)
        self._warm_retrieval(snapshot)
        return snapshot

    def _swap(self, snapshot: Snapshot) -> None:
        self._served.replace(snapshot)
        self._say_what_is_served()
        self.metrics.snapshot_swaps.labels("swapped").inc()

    def deadline(self, timeout_seconds: float | None = None) -> Deadline:
        """Return the deadline of a request that begins now: the configured one, or the client's if that is earlier."""
        longest = self.settings.request_timeout_seconds
        return Deadline.after(longest if timeout_seconds is None else min(longest, timeout_seconds))

    @contextmanager
    def admitted(self, cost: Cost, deadline: Deadline | None) -> Iterator[Deadline]:
        """Hold the tokens of a request for the while; give its deadline, which is the configured one for None.

        Raises:
            Overloaded, DeadlineExceeded: as `Admission.admitted`.
        """
        deadline = self.deadline() if deadline is None else deadline
        with self.admission.admitted(cost, deadline):
            yield deadline

    @contextmanager
    def will_read(self, n_tokens: int) -> Iterator[None]:
        """Count the tokens of an answer that it means to have read, for the while that it is under way."""
        self.tokens_to_read += n_tokens
        try:
            yield
        finally:
            self.tokens_to_read -= n_tokens

    def _tokens_per_second(self) -> float:
        """Return the rate of the model that was measured the fastest: the others were given few tokens at a time."""
        return max(queue.tokens_per_second for queue in (self.encoding, self.reranking, self.reading))

    def note_reranked(self, read_share: float) -> None:
        """Move read_share a twentieth of the way to that of one search; one that had no time counts as reading all."""
        self.read_share += (read_share - self.read_share) * 0.05

    def reading_rate(self) -> float:
        """Return how many tokens a second the reader was measured to do, or else any model; 0 while unknown."""
        return self.reading.tokens_per_second or self._tokens_per_second()

    async def encode_query(self, query: str) -> QueryVector:
        """Return the vector of a query.

        Raises:
            NotReady: as `MicroBatcher.submit`.
        """
        known = self.cache.vector(query)
        if known is not None:
            return known
        [item] = await asyncio.to_thread(self.models.dual_encoder.inputs, [query], "query")
        [vector] = await self.encoding.submit([item])
        found = QueryVector(vector.copy(), item.passage_cut)  # a row of a batch would keep all of it
        self.cache.keep_vector(query, found)
        return found

    def _encode(self, inputs: Sequence[ModelInput]) -> list[Vector]:
        return list(self.models.dual_encoder.vectors(inputs))

    def _rerank(self, inputs: Sequence[ModelInput]) -> list[float]:
        return [float(logit) for logit in self.models.cross_encoder.logits(inputs)]

    def _warm(self) -> None:
        self._warm_retrieval(self.snapshot)
        self.models.cross_encoder.score("warm", [_WARM_UP_TEXT])
        self.models.reader.read("warm", [_WARM_UP_TEXT])

    def _warm_retrieval(self, snapshot: Snapshot) -> None:
        [vector] = self.models.dual_encoder.encode_queries([_WARM_UP_TEXT]).vectors
        snapshot.search_dense(vector, 10)
        snapshot.search_bm25(_WARM_UP_TEXT, 10)


@asynccontextmanager
async def open_engine(settings: Settings, *, metrics: Metrics | None = None) -> AsyncIterator[Engine]:
    """Load, warm and start an engine, and stop it at the end.

    Raises:
        ModelError, SnapshotError: as `load_models` and `open_snapshot`; each message is fit to show.
    """
    models = await asyncio.to_thread(load_models, settings)
    engine = Engine(  # no name here holds the snapshot, which would keep its files mapped after it was replaced
        settings, models=models, snapshot=await asyncio.to_thread(open_snapshot, settings, models), metrics=metrics
    )
    try:
        await engine.start()
        yield engine
    finally:
        await engine.stop()


def _tokens(item: ModelInput) -> int:
    return int(item.ids.size)
