"""Install and export what the peers need, and let each of them score in every round."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from peers.catalogue import ENVIRONMENTS, LIBRARIES, OWN, Peer
from peers.environments import make_environment
from peers.failures import PeerError
from peers.measuring import WORKERS, Sample, measure
from peers.results import Results, clients_name
from peers.serving import Service, infinity_service, measure_service, tercet_service
from peers.weights import export_checkpoints, weights_folder, write_checkpoints
from peers.work import Work
from peers.workers.protocol import Task


class Rounds:
    """Measures peers over one index's work; environments and weights stay in `home`."""

    def __init__(self, home: Path, index: Path, work: Work, say: Callable[[str], None]) -> None:
        self.results = Results()
        self._home, self._index, self._work, self._say = home, index, work, say
        self._pythons = {OWN: Path(sys.executable)}
        self.weights = weights_folder(home)
        self._export_failures: list[str] = []

    def prepare(self, peers: Sequence[Peer]) -> None:
        """Make the environments and the weights of peers; whose environment cannot be made is not run."""
        for name in dict.fromkeys([LIBRARIES, *(peer.environment for peer in peers if peer.environment != OWN)]):
            self._say(f"environment {name}")
            try:
                self._pythons[name] = make_environment(self._home / name, ENVIRONMENTS[name])
            except PeerError as error:
                self._say(f"  {error}")
                for peer in peers:
                    if peer.environment == name:
                        self.results.drop(peer, str(error))
        self._say("weights")
        self.weights.mkdir(parents=True, exist_ok=True)
        write_checkpoints(self.weights)
        if LIBRARIES in self._pythons:
            with tempfile.TemporaryDirectory(prefix="tercet-peers-") as folder:
                calibration = self._work.write(Path(folder))["calibration"]
                self._export_failures = export_checkpoints(self.weights, self._pythons[LIBRARIES], calibration)
        for failure in self._export_failures:
            self._say(f"  {failure}")

    def run(self, peers: Sequence[Peer], n_rounds: int) -> None:
        """Let each peer score in every round, unless it has failed."""
        for i in range(n_rounds):
            for peer in peers:
                if (peer.kind, peer.name) in self.results.not_run:
                    continue
                try:
                    found = self._measured(peer)
                except (PeerError, httpx.HTTPError, OSError, ValueError, KeyError) as error:
                    reason = str(error) if isinstance(error, PeerError) else f"{type(error).__name__}: {error}"
                    self.results.drop(peer, reason)
                    self._say(f"round {i + 1}: {peer.name} ({peer.kind}): {reason}")
                    continue
                for name, sample in found.items():
                    self.results.add(peer.kind, name, sample)
                    self._say(f"round {i + 1}: {name} ({peer.kind}): {sample.per_second:.1f}/s")

    def _measured(self, peer: Peer) -> dict[str, Sample]:
        if not (self.weights / peer.weights).exists():
            raise PeerError(f"its weights were not made: {'; '.join(self._export_failures) or peer.weights}")
        with tempfile.TemporaryDirectory(prefix="tercet-peers-") as name:
            folder = Path(name)
            if peer.kind == "serve":
                requests = self._work.requests["rerank"]
                found = measure_service(lambda port: self._service(peer, port), requests, folder / "log")
                return {clients_name(peer.name, n): sample for n, sample in found.items()}
            task = Task(
                kind=peer.kind,
                model=self.weights / peer.model,
                variant=peer.variant,
                requests=self._work.write(folder)[peer.kind],
                result=folder / "result.json",
            )
            return {peer.name: measure(self._pythons[peer.environment], WORKERS / f"{peer.program}.py", task)}

    def _service(self, peer: Peer, port: int) -> Service:
        if peer.environment == OWN:
            return tercet_service(self._index, peer.variant, port)
        return infinity_service(self._pythons[peer.environment], self.weights / peer.model, peer.variant, port)
