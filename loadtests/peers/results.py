"""What was measured, row by row, and the figures that follow from it."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from fidelity import Fidelity, fidelity
from numpy.typing import NDArray

from peers.catalogue import EMBEDDING_REFERENCE, REFERENCE, TERCET, TERCET_EMBEDDING, TERCET_SERVED, Kind, Peer
from peers.measuring import Sample

Key: TypeAlias = tuple[Kind, str]  # names are unique among those of a kind


@dataclass(slots=True)
class Results:
    """Samples by row, one of each round, and why a peer has none."""

    samples: dict[Key, list[Sample]] = field(default_factory=dict)
    not_run: dict[Key, str] = field(default_factory=dict)

    def add(self, kind: Kind, name: str, sample: Sample) -> None:
        """Add the sample of a round."""
        self.samples.setdefault((kind, name), []).append(sample)

    def drop(self, peer: Peer, reason: str) -> None:
        """Note that a peer failed; what it did in earlier rounds does not count."""
        self.not_run[peer.kind, peer.name] = reason
        for key in [(kind, name) for kind, name in self.samples if kind == peer.kind and peer_of(name) == peer.name]:
            del self.samples[key]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; None where there is nothing to compare with.

    per_second counts pairs, or passages; over_reference and tercet_over are medians of the ratios of each round.
    cosines are the mean and the least of vectors to those of fp32.
    """

    name: str
    per_second: float
    slowest: float
    fastest: float
    over_reference: float | None
    tercet_over: float | None
    fidelity: Fidelity | None
    cosines: tuple[float, float] | None
    peak_mb: float
    start_seconds: float


def clients_name(peer: str, n_clients: int) -> str:
    """Return the row's name of a service at a number of clients."""
    return f"{peer}: {n_clients} client{'s' if n_clients != 1 else ''}"


def peer_of(name: str) -> str:
    """Return the peer's name of a row's."""
    return name.split(":")[0]


def ratio(ours: Sequence[Sample], theirs: Sequence[Sample]) -> float:
    """Return the median over rounds of how many times faster ours was in the same round.

    Worked example: 30, 20 and 60 against 10, 10 and 10 is 3.
    """
    return statistics.median(one.per_second / other.per_second for one, other in zip(ours, theirs, strict=True))


def rows(results: Results, kind: Kind) -> list[Row]:
    """Return a kind's rows in the order in which they were measured."""
    return [_row(results.samples, key) for key in results.samples if key[0] == kind]


def reference_of(kind: Kind) -> Key:
    """Return the row of sentence-transformers in torch, fp32."""
    peer = EMBEDDING_REFERENCE if kind == "embed" else REFERENCE
    return peer.kind, peer.name


def tercet_of(key: Key) -> Key:
    """Return the row of Tercet that a row is compared with."""
    kind, name = key
    if kind == "serve":
        return kind, TERCET_SERVED.name + name.removeprefix(peer_of(name))
    return kind, (TERCET_EMBEDDING if kind == "embed" else TERCET).name


def _row(samples: Mapping[Key, Sequence[Sample]], key: Key) -> Row:
    own, exact, ours = samples[key], samples.get(reference_of(key[0])), samples.get(tercet_of(key))
    rates = [sample.per_second for sample in own]
    return Row(
        name=key[1],
        per_second=statistics.median(rates),
        slowest=min(rates),
        fastest=max(rates),
        over_reference=None if exact is None else ratio(own, exact),
        tercet_over=None if ours is None else ratio(ours, own),
        fidelity=None if exact is None or key[0] == "embed" else fidelity(own[-1].outputs, exact[-1].outputs),
        cosines=None if exact is None or key[0] != "embed" else cosines(own[-1].outputs, exact[-1].outputs),
        peak_mb=max(sample.peak_mb for sample in own),
        start_seconds=statistics.median(sample.start_seconds for sample in own),
    )


def cosines(vectors: NDArray[np.float32], exact: NDArray[np.float32]) -> tuple[float, float]:
    """Return the mean and the least cosine of vectors (n, dimension) with the exact ones."""
    products = (vectors * exact).sum(axis=1)
    found = products / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(exact, axis=1))
    return float(found.mean()), float(found.min())
