"""Every Prometheus series of the service. docs/metrics.md is the table for operators.

Labels come from closed sets: a route is a path template, a method one that HTTP defines, a model one of three, a key
one that is known.
Each service object has a registry of its own, so that several can live in one process.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
STAGES = ("encode", "retrieve", "fuse", "rerank", "read", "respond")
CUT_SHORT = ("rerank", "read")
CACHED = ("vector", "logit")
RERANKED = ("read", "settled", "deadline")
RERANKED_TOKENS = ("read", "left_out")
MODELS = ("dual_encoder", "cross_encoder", "reader")
REFUSALS = ("full", "deadline")
OUTCOMES = ("answer", "no_answer")
SWAPS = ("swapped", "refused")
KEY_OUTCOMES = ("admitted", "scope_missing", "at_limit")
TRUNCATED = ("query", "passage")
JOBS_UNDER_WAY = ("queued", "running")
JOBS_OVER = ("succeeded", "failed", "cancelled", "interrupted")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_JOB_SECONDS = (1, 5, 15, 60, 300, 900, 3600, 14_400, 43_200, 86_400)
_BATCH_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Queue(Protocol):
    """What the gauges read of a model's queue; a `MicroBatcher` of any type is one."""

    @property
    def n_waiting(self) -> int:
        """Inputs that wait."""
        ...

    @property
    def waiting_tokens(self) -> int:
        """Tokens of those inputs."""
        ...


class Metrics:
    """The series of one service and the registry that exposes them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.requests = Counter(
            "tercet_requests", "Requests answered.", ("route", "method", "status"), registry=registry
        )
        self.request_duration_seconds = Histogram(
            "tercet_request_duration_seconds", "From the request's head to the response's last byte.", ("route",),
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.stage_duration_seconds = Histogram(
            "tercet_stage_duration_seconds", "Time of one stage of one request, waiting for the model included.",
            ("stage",), buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.answers = Counter("tercet_answers", "Answers given, by outcome.", ("outcome",), registry=registry)
        self._define_models()
        self._define_reranking()
        self._define_admission()
        self._define_state()
        self._define_jobs()
        self._define_keys()
        self._start_at_zero()

    def _define_models(self) -> None:
        self.truncated = Counter(
            "tercet_truncated", "Queries and passages that did not fit a model.", ("what",), registry=self.registry
        )
        self.cache_lookups = Counter(
            "tercet_cache_lookups",
            "Query vectors and rerank logits that were needed, by whether they were known.",
            ("what", "outcome"),
            registry=self.registry,
        )
        self.cache_bytes = Gauge("tercet_cache_bytes", "Memory that they take.", registry=self.registry)
        self.batch_items = Histogram(
            "tercet_batch_items", "Model inputs in one batch.", ("model",), buckets=_BATCH_ITEMS, registry=self.registry
        )

    def _define_reranking(self) -> None:
        self.not_finite_scores = Counter(
            "tercet_not_finite_scores",
            "Candidates for which the cross-encoder gave no finite score.",
            registry=self.registry,
        )
        self.retokenized_passages = Counter(
            "tercet_retokenized_passages",
            "Passages tokenized on the request path, because the index holds tokens of another tokenizer.",
            registry=self.registry,
        )
        self.rerank_candidates = Counter(
            "tercet_rerank_candidates",
            "Candidates that were to be reranked: read, or left unread for one of two reasons.",
            ("outcome",),
            registry=self.registry,
        )
        self.rerank_tokens = Counter(
            "tercet_rerank_tokens",
            "Tokens that the cross-encoder read of queries and candidates, and those that excerpts left out.",
            ("outcome",),
            registry=self.registry,
        )

    def _define_admission(self) -> None:
        self.requests_refused = Counter(
            "tercet_requests_refused",
            "Requests refused before any work: too much is under way, or the deadline cannot be kept.",
            ("reason",),
            registry=self.registry,
        )
        self.degraded = Counter(
            "tercet_degraded",
            "Requests whose stage was cut short for the deadline.",
            ("stage",),
            registry=self.registry,
        )
        self.admitted_tokens = Gauge(
            "tercet_admitted_tokens", "Estimated tokens of the requests under way.", registry=self.registry
        )

    def _define_state(self) -> None:
        self.engines = Gauge("tercet_engine_info", "What runs a model.", ("model", "engine"), registry=self.registry)
        self.index = Info("tercet_index", "The snapshot that is served.", registry=self.registry)
        self.index_passages = Gauge(
            "tercet_index_passages", "Passages in the snapshot that is served.", ("index",), registry=self.registry
        )
        self.snapshot_damaged = Gauge(
            "tercet_snapshot_damaged",
            "1 while a file of the served snapshot is not the one that was opened; otherwise 0.",
            registry=self.registry,
        )
        self.snapshot_swaps = Counter(
            "tercet_snapshot_swaps",
            "Newly published snapshots that were taken over, or refused because they cannot be opened.",
            ("outcome",),
            registry=self.registry,
        )
        self.ready = Gauge("tercet_ready", "1 when requests are served, otherwise 0.", registry=self.registry)

    def _define_jobs(self) -> None:
        self.jobs = Gauge("tercet_jobs", "Indexing jobs that wait or run.", ("state",), registry=self.registry)
        self.jobs_over = Counter("tercet_jobs_over", "Indexing jobs that ended.", ("state",), registry=self.registry)
        self.job_duration_seconds = Histogram(
            "tercet_job_duration_seconds", "From start to end of an indexing job that ran.", ("state",),
            buckets=_JOB_SECONDS, registry=self.registry,
        )  # fmt: skip

    def _define_keys(self) -> None:
        self.key_requests = Counter(
            "tercet_key_requests", "Requests with an accepted API key.", ("key", "outcome"), registry=self.registry
        )
        self.key_file_damaged = Gauge(
            "tercet_key_file_damaged",
            "1 while the file of API keys cannot be read, and those before count; otherwise 0.",
            registry=self.registry,
        )
        self._keys: set[str] = set()

    def _start_at_zero(self) -> None:
        """Create the series of closed labels now, so that a rate is right from the first event on."""
        for stage in STAGES:
            self.stage_duration_seconds.labels(stage)
        for model in MODELS:
            self.batch_items.labels(model)
        for reason in REFUSALS:
            self.requests_refused.labels(reason)
        for stage in CUT_SHORT:
            self.degraded.labels(stage)
        for what in CACHED:
            for outcome in ("hit", "miss"):
                self.cache_lookups.labels(what, outcome)
        for outcome in RERANKED:
            self.rerank_candidates.labels(outcome)
        for outcome in RERANKED_TOKENS:
            self.rerank_tokens.labels(outcome)
        for outcome in OUTCOMES:
            self.answers.labels(outcome)
        for outcome in SWAPS:
            self.snapshot_swaps.labels(outcome)
        for what in TRUNCATED:
            self.truncated.labels(what)
        for state in JOBS_UNDER_WAY:
            self.jobs.labels(state)
        for state in JOBS_OVER:
            self.jobs_over.labels(state)
            self.job_duration_seconds.labels(state)

    def expose(self) -> bytes:
        """Return all series in Prometheus' text format."""
        return generate_latest(self.registry)

    def watch_index(self, *, index: str, snapshot: str, n_passages: int) -> None:
        """Say which snapshot is served."""
        self.index.info({"index": index, "snapshot": snapshot})
        self.index_passages.labels(index).set(n_passages)

    def watch_engines(self, engines: Mapping[str, str]) -> None:
        """Say what runs each model."""
        for model, engine in engines.items():
            self.engines.labels(model, engine).set(1)

    def watch_readiness(self, is_ready: Callable[[], bool]) -> None:
        """Expose whether requests are served, asked at each scrape."""
        self.ready.set_function(lambda: float(is_ready()))

    def watch_jobs(self, count: Callable[[str], int]) -> None:
        """Expose how many jobs are queued and running, asked at each scrape."""
        for state in JOBS_UNDER_WAY:
            self.jobs.labels(state).set_function(partial(count, state))

    def refused(self, reason: str) -> None:
        """Count a request that was turned away before any work, for one of REFUSALS."""
        self.requests_refused.labels(reason).inc()

    def watch_admission(self, tokens: Callable[[], int]) -> None:
        """Expose the estimated tokens of the requests under way, asked at each scrape."""
        self.admitted_tokens.set_function(tokens)

    def watch_keys(self, names: Collection[str]) -> None:
        """Have series of these keys, and of no others."""
        for outcome in KEY_OUTCOMES:
            for name in self._keys - set(names):
                self.key_requests.remove(name, outcome)
            for name in names:
                self.key_requests.labels(name, outcome)
        self._keys = set(names)

    def queue(self, model: str) -> "QueueMetrics":
        """Return what counts the batches of one model's queue."""
        return QueueMetrics(self, model)

    def watch_queues(self, queues: Mapping[str, Queue]) -> None:
        """Expose what waits in the queues, by model, measured at each scrape."""
        self.registry.register(_Queues(queues))

    def count_cut(self, *, query_tokens: int, n_passages: int) -> None:
        """Count what did not fit a model in one request."""
        if query_tokens > 0:
            self.truncated.labels("query").inc()
        self.truncated.labels("passage").inc(n_passages)


class QueueMetrics:
    """The events of one model's queue, as counted series."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        assert model in MODELS, f"{model} is none of {MODELS}"
        self._batch_items = metrics.batch_items.labels(model)

    def batch(self, n_items: int) -> None:
        """Count a batch that has run."""
        self._batch_items.observe(n_items)


class _Queues(Collector):
    """Reads queue lengths when scraped, so that a gauge cannot go stale."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues

    def collect(self) -> Iterable[Metric]:
        waiting = GaugeMetricFamily("tercet_queue_waiting", "Model inputs that wait.", labels=("model",))
        tokens = GaugeMetricFamily("tercet_queue_waiting_tokens", "Tokens of those inputs.", labels=("model",))
        for model, queue in self._queues.items():
            waiting.add_metric([model], queue.n_waiting)
            tokens.add_metric([model], queue.waiting_tokens)
        return [waiting, tokens]
