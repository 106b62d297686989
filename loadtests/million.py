"""Build an index of a million passages of real text, and time each leg of retrieval on it.

    python loadtests/million.py SOURCE... [--n 1000000] [--work DIR]

Sources are BEIR folders or files, as `tercet index` takes them; their words are cut into windows of 90 that overlap as
much as it takes. Cutting, terms, tokens, store, metadata and publishing are those of a real build. Vectors are those of
5,000 windows by the bundled dual encoder plus noise, which is what a search of real ones is like without the hours of
embedding. Peers on the same terms and vectors: `million_peers.py`.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from indexer.build import build_snapshot
from indexer.documents import Document
from indexer.publish import current_snapshot
from indexer.recipe import BuildProgress, BuildRun, IndexModels, PassageEncoder
from indexer.sources import read_documents
from models.dual_encoder import DualEncoder, Embeddings
from models.folder import BUNDLED_CROSS_ENCODER, BUNDLED_DUAL_ENCODER, TOKENIZER_FILE, open_model_folder
from models.session import Runtime, available_cpus
from models.tokenization import Tokenizer

WORDS_A_PASSAGE = 90
N_REAL_VECTORS = 5_000
NOISE = 0.03  # a component's standard deviation; a unit vector of 384 has components of .05
N_QUERIES = 1_000


class NoisyEncoder:
    """Gives a text one of some real vectors, chosen by the text's hash, plus noise of the same hash."""

    def __init__(self, encoder: PassageEncoder, texts: Sequence[str]) -> None:
        self.fingerprint = hashlib.sha256(f"noisy {encoder.fingerprint}".encode()).hexdigest()
        self.dimension, self.tokenizer = encoder.dimension, encoder.tokenizer
        self._real = encoder.encode_passages(texts).vectors

    def encode_passages(self, passages: Sequence[str]) -> Embeddings:
        """Return one unit vector a passage."""
        seeds = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") for text in passages]
        noise = np.stack([np.random.Generator(np.random.SFC64(seed)).standard_normal(self.dimension) for seed in seeds])
        vectors = self._real[[seed % len(self._real) for seed in seeds]] + NOISE * noise
        unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        return Embeddings(unit, np.zeros(len(passages), np.int64))


def passages_of(sources: Sequence[str], n: int) -> Iterator[Document]:
    """Yield n documents of one passage each."""
    words = [
        word
        for source in sources
        for document in read_documents(source)
        if isinstance(document, Document)
        for word in document.text.split()
    ]
    step = max(1, (len(words) - WORDS_A_PASSAGE) // n)
    print(f"{len(words):,} words; a passage begins every {step} words", flush=True)
    for i in range(n):
        start = i * step % (len(words) - WORDS_A_PASSAGE)
        yield Document(f"p{i:07}", " ".join(words[start : start + WORDS_A_PASSAGE]), metadata={"number": i})


def peak_mb() -> int:
    """Return the most resident memory of this process since `forget_peak`; pages of mapped files count."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def forget_peak() -> None:
    """Let `peak_mb` count from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


class Phases:
    """How long each stage of a build took, and its peak memory."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peaks_mb: dict[str, int] = {}
        self._since, self._stage = time.monotonic(), "read"
        forget_peak()

    def note(self, progress: BuildProgress) -> None:
        """Count the time since the last call to the stage that was under way."""
        now = time.monotonic()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self.peaks_mb[self._stage] = max(self.peaks_mb.get(self._stage, 0), peak_mb())
        if self._stage != progress.stage:
            forget_peak()
        self._since, self._stage = now, progress.stage


def build(sources: Sequence[str], n: int, index_path: Path) -> dict[str, Any]:
    """Build the index unless it is there, and return what that took."""
    encoder_folder = open_model_folder(BUNDLED_DUAL_ENCODER, "dual-encoder")
    passage_folder = open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder")
    real = DualEncoder(encoder_folder, Runtime(available_cpus()))
    sample = [document.text for document in passages_of(sources, N_REAL_VECTORS)]
    models = IndexModels(
        NoisyEncoder(real, sample),
        Tokenizer(passage_folder.path / TOKENIZER_FILE),
        passage_folder.tokenizer_fingerprint,
    )
    phases, started = Phases(), time.monotonic()
    report = build_snapshot(
        passages_of(sources, n), index_path=index_path, models=models, run=BuildRun(progress=phases.note)
    )
    return {
        "seconds": round(time.monotonic() - started, 1),
        "by_stage": {stage: round(seconds, 1) for stage, seconds in phases.seconds.items()},
        "peak_mb_by_stage": {**phases.peaks_mb, "publish": peak_mb()},
        "disk_mb": round(report.n_bytes / 1e6),
        "n_passages": report.n_passages,
        "dense": report.dense.model_dump(),
    }


START = """
import sys, time
from pathlib import Path
started = time.monotonic()
from indexer.snapshot import Snapshot
imported = time.monotonic()
folder, encoder, verify = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "1"
Snapshot.open_folder(folder, "million", encoder_fingerprint=encoder, dimension=384, verify=verify)
opened = time.monotonic() - imported
peak_kb = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
print(imported - started, opened, peak_kb // 1024)
"""


def start(folder: Path, fingerprint: str) -> dict[str, Any]:
    """Return how long a new process takes to open the snapshot, with and without reading every byte."""
    found = {}
    for name, verify in (("mapped", "0"), ("verified", "1")):
        command = [sys.executable, "-c", START, str(folder), fingerprint, verify]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        imports, seconds, peak_mb = map(float, done.stdout.split())
        found[name] = {"import_seconds": round(imports, 2), "open_seconds": round(seconds, 3), "peak_mb": peak_mb}
    return found


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50 and p99 in milliseconds."""
    p50, p99 = np.percentile(np.array(seconds) * 1000, [50, 99]).round(3).tolist()
    return {"p50_ms": p50, "p99_ms": p99}


def timed(search: Any, queries: Sequence[Any]) -> list[float]:
    """Return the wall time of each query, after ten to warm up."""
    for query in queries[:10]:
        search(query)
    seconds = []
    for query in queries:
        started = time.perf_counter()
        search(query)
        seconds.append(time.perf_counter() - started)
    return seconds


def main() -> None:
    """Build, open, search; print one JSON object."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, default=Path("million"))
    arguments = parser.parse_args()
    index_path = arguments.work / "million"
    results: dict[str, Any] = {"build": build(arguments.sources, arguments.n, index_path)}
    folder = current_snapshot(index_path)
    assert folder is not None
    manifest = json.loads((folder / "manifest.json").read_bytes())
    results["start"] = start(folder, manifest["encoder"]["fingerprint"])
    print(json.dumps(results, indent=2), flush=True)
    print(f"now: python loadtests/million_peers.py {folder}")


if __name__ == "__main__":
    main()
