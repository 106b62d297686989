"""What Tercet is meant to reach against each peer, and whether it did in this run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fidelity import Fidelity, fidelity

from peers.catalogue import TERCET, TERCET_EXCERPTS, TERCET_IN_ONNX, TERCET_SERVED
from peers.measuring import Sample
from peers.results import Key, Results, clients_name, ratio, reference_of, tercet_of
from peers.serving import N_CLIENTS

Samples: TypeAlias = Mapping[Key, Sequence[Sample]]

# A peer's row: how many times faster Tercet is to be in its exact mode, and in its fast one.
GOALS: Mapping[Key, tuple[float, float]] = {
    ("rerank", "sentence-transformers torch"): (6, 9),
    ("rerank", "sentence-transformers onnx"): (3, 4),
    ("rerank", "sentence-transformers onnx qint8"): (1.7, 2.6),
    ("rerank", "sentence-transformers openvino"): (1.4, 1.45),
    ("rerank", "sentence-transformers openvino qint8"): (1.4, 1.45),
    ("rerank", "flashrank int8"): (2.4, 3.5),
    **{("serve", clients_name("infinity torch", n)): (5.0, 8.0) for n in N_CLIENTS},
    **{("serve", clients_name("infinity optimum", n)): (3.0, 4.5) for n in N_CLIENTS},
    ("embed", "sentence-transformers torch"): (5.5, 5.5),
    ("embed", "sentence-transformers openvino"): (1.45, 1.45),
}
OWN_SHARE = 0.97  # of the pairs/s of the engine in process that the service keeps
TOP_10_KEPT = 0.98  # what makes a mode exact
TAU = 0.99
NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal of one of Tercet's ways against something; None where nothing was measured or nothing is asked.

    is_exact says whether that way's scores are near enough to fp32 to count for the exact mode.
    """

    ours: str
    against: str
    found: float | None
    exact: float | None
    fast: float | None
    is_exact: bool = True

    @property
    def in_exact_mode(self) -> str:
        """Whether the exact mode's goal is met; "not shown exact" is fast enough only."""
        said = self._said(self.exact)
        return "not shown exact" if said == "met" and not self.is_exact else said

    @property
    def in_fast_mode(self) -> str:
        """Whether the fast mode's goal is met."""
        return self._said(self.fast)

    def _said(self, goal: float | None) -> str:
        if goal is None:
            return "–"
        if self.found is None:
            return NOT_RUN
        return "met" if self.found >= goal else "not met"


def verdicts(results: Results) -> list[Verdict]:
    """Return every goal, whether or not its peer was run; reranking in process for each way of Tercet's."""
    samples, found = results.samples, []
    for peer in (TERCET, TERCET_EXCERPTS, TERCET_IN_ONNX):
        ours: Key = (peer.kind, peer.name)
        found += _exactness(samples, ours)
        found += [_speed(samples, ours, key) for key in GOALS if key[0] == "rerank"]
    found += [_speed(samples, tercet_of(key), key) for key in GOALS if key[0] != "rerank"]
    in_process: Key = (TERCET.kind, TERCET.name)
    for n in N_CLIENTS:
        ours = ("serve", clients_name(TERCET_SERVED.name, n))
        found.append(Verdict(ours[1], in_process[1], _ratio(samples, ours, in_process), OWN_SHARE, OWN_SHARE))
    return found


def _exactness(samples: Samples, ours: Key) -> list[Verdict]:
    near = _fidelity(samples, ours)
    return [
        Verdict(ours[1], "top-10 kept of fp32", None if near is None else near.top_10_kept, TOP_10_KEPT, None),
        Verdict(ours[1], "Kendall's tau with fp32", None if near is None else near.tau, TAU, None),
    ]


def _is_exact(samples: Samples, ours: Key) -> bool:
    near = _fidelity(samples, ours)
    return ours[0] == "embed" or (near is not None and near.top_10_kept >= TOP_10_KEPT and near.tau >= TAU)


def _fidelity(samples: Samples, ours: Key) -> Fidelity | None:
    """Return None for vectors, and where one of the two was not run."""
    exact = reference_of(ours[0])
    if ours[0] == "embed" or not {ours, exact} <= set(samples):
        return None
    return fidelity(samples[ours][-1].outputs, samples[exact][-1].outputs)


def _speed(samples: Samples, ours: Key, against: Key) -> Verdict:
    exact, fast = GOALS[against]
    return Verdict(ours[1], against[1], _ratio(samples, ours, against), exact, fast, _is_exact(samples, ours))


def _ratio(samples: Samples, ours: Key, theirs: Key) -> float | None:
    return ratio(samples[ours], samples[theirs]) if {ours, theirs} <= set(samples) else None
