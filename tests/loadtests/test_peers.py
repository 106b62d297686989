"""The parts of the comparison with peers that are logic, and its processes, with small ones that score by length."""

import sys
from pathlib import Path

import numpy as np
import pytest
from fidelity import fidelity, kendall_tau
from numpy.typing import NDArray
from peers.catalogue import OWN, PEERS, REFERENCE, TERCET, TERCET_SERVED, Peer, chosen
from peers.environments import make_environment, python_of
from peers.failures import PeerError
from peers.goals import GOALS, NOT_RUN, verdicts
from peers.measuring import Sample, last_line, measure, outputs_of
from peers.results import Results, clients_name, cosines, ratio, rows
from peers.rounds import Rounds
from peers.serving import N_CLIENTS, Service, measure_service
from peers.table import tables
from peers.weights import plain_tokenizer
from peers.work import Name, Work
from peers.workers.protocol import Task
from target import TargetError
from tokenizers import Tokenizer

from models.folder import BUNDLED, BUNDLED_CROSS_ENCODER, TOKENIZER_FILE

WORK = Work({"rerank": [("a", ["bb", "c"]), ("a", ["d", "eee"])], "embed": [("", ["bb", "c", "d"])], "calibration": []})
EXACT = np.array([[3, 2, 1], [1, 2, 3]], np.float32)

WORKER = """
from peers.workers.protocol import run

def load(task):
    {load}
    if task.kind == "embed":
        return lambda query, passages: [[len(passage), 0.0] for passage in passages]
    return lambda query, passages: [{score} for passage in passages]

run(load)
"""
SERVER = """
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        scores = [{"index": i, "relevance_score": 2 * len(text)} for i, text in enumerate(body["documents"])]
        content = json.dumps({"results": scores[::-1]}).encode()
        self.send_response(200 if self.path == "/rerank" else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def sample(per_second: float, outputs: NDArray[np.float32] = EXACT) -> Sample:
    return Sample(per_second, outputs, peak_mb=500, start_seconds=2)


def results(rates: dict[str, float]) -> Results:
    """Return one round of reranking."""
    found = Results()
    for name, rate in rates.items():
        found.add("rerank", name, sample(rate))
    return found


def task(folder: Path, kind: Name = "rerank") -> Task:
    return Task(kind, folder, "any", WORK.write(folder)[kind], folder / "result.json")


def worker(folder: Path, *, load: str = "pass", score: str = "len(passage)") -> Path:
    path = folder / "with_length.py"
    path.write_text(WORKER.format(load=load, score=score))
    return path


def test_kendall_tau_is_one_third_where_one_pair_of_three_is_swapped() -> None:
    assert kendall_tau(np.array([3, 2, 1], np.float32), np.array([3, 1, 2], np.float32)) == pytest.approx(1 / 3)


def test_fidelity_of_the_same_logits_is_perfect_and_sees_a_lost_candidate() -> None:
    exact = np.arange(20, dtype=np.float32)[None]
    same, moved = fidelity(exact, exact), exact.copy()
    moved[0, 19] = 0.5  # from the first place to the last but one
    assert (same.difference_max, same.top_10_kept, same.tau) == (0, 1, 1)
    other = fidelity(moved, exact)
    assert (other.difference_max, other.top_10_kept) == (18.5, 0.9)
    assert other.tau == pytest.approx(1 - 2 * 18 / 190)


def test_cosines_are_the_mean_and_the_least() -> None:
    exact = np.array([[1, 0], [0, 1]], np.float32)
    assert cosines(np.array([[2, 0], [1, 1]], np.float32), exact) == pytest.approx(((1 + 0.5**0.5) / 2, 0.5**0.5))


def test_a_ratio_is_the_median_of_the_ratios_within_rounds() -> None:
    assert ratio([sample(30), sample(20), sample(60)], [sample(10), sample(10), sample(10)]) == 3
    # a slow minute of the machine, which hits both, leaves it as it is
    assert ratio([sample(30), sample(3), sample(30)], [sample(10), sample(1), sample(10)]) == 3


@pytest.mark.parametrize(
    ("rate", "exact", "fast"), [(59, "not met", "not met"), (60, "met", "not met"), (90, "met", "met")]
)
def test_a_goal_is_met_from_its_number_on(rate: float, exact: str, fast: str) -> None:
    found = verdicts(results({TERCET.name: rate, REFERENCE.name: 10}))
    verdict = next(each for each in found if (each.ours, each.against) == (TERCET.name, REFERENCE.name))
    assert (verdict.in_exact_mode, verdict.in_fast_mode) == (exact, fast)


def test_a_goal_without_its_peer_is_neither_met_nor_missed() -> None:
    found = verdicts(results({TERCET.name: 100}))
    assert {each.in_exact_mode for each in found} == {NOT_RUN}
    assert len(found) >= len(GOALS)


def test_exactness_is_judged_by_what_was_scored() -> None:
    found = Results()
    found.add("rerank", TERCET.name, sample(10, EXACT[:, ::-1].copy()))
    found.add("rerank", REFERENCE.name, sample(1))
    kept, tau, speed, *_ = verdicts(found)
    assert (kept.in_exact_mode, tau.found, tau.in_exact_mode) == ("met", -1, "not met")
    assert (speed.against, speed.in_exact_mode, speed.in_fast_mode) == (REFERENCE.name, "not shown exact", "met")


def test_every_goal_is_against_a_row_that_a_peer_can_have() -> None:
    names = {
        (peer.kind, name)
        for peer in PEERS
        for name in ([clients_name(peer.name, n) for n in N_CLIENTS] if peer.kind == "serve" else [peer.name])
    }
    assert set(GOALS) <= names
    assert len({(peer.kind, peer.name) for peer in PEERS}) == len(PEERS)


def test_what_a_chosen_peer_is_compared_with_comes_too() -> None:
    assert chosen([]) == list(PEERS)
    assert [peer.name for peer in chosen(["flashrank int8"])] == [TERCET.name, REFERENCE.name, "flashrank int8"]
    assert TERCET in chosen(["infinity"])
    assert TERCET_SERVED in chosen(["infinity"])
    with pytest.raises(TargetError, match="There is no peer 'abacus'; there are: tercet, "):
        chosen(["abacus"])


def test_a_failed_peer_is_shown_with_its_reason_and_without_what_it_did_before() -> None:
    found = results({TERCET.name: 10})
    peer = Peer("infinity torch", "serve", OWN, "infinity", "torch")
    found.add("serve", clients_name(peer.name, 1), sample(5))
    found.drop(peer, "it ended with -9: killed")
    text = tables(found)
    assert rows(found, "serve") == []
    assert "- infinity torch (serve): it ended with -9: killed" in text
    assert "| tercet | 10.0 | 10.0 – 10.0 | – | 1 | – | – | – | 500 | 2.0 |" in text


def test_the_table_says_how_near_the_scores_are_and_who_is_faster() -> None:
    found = Results()
    found.add("rerank", TERCET.name, sample(60, EXACT + np.float32(0.5)))
    found.add("rerank", REFERENCE.name, sample(10))
    lines = tables(found).splitlines()
    assert "| tercet | 60.0 | 60.0 – 60.0 | 6 | 1 | 0.500 / 0.500 | 1.000 | 1.000 | 500 | 2.0 |" in lines
    assert (
        "| sentence-transformers torch | 10.0 | 10.0 – 10.0 | 1 | 6 | 0.000 / 0.000 | 1.000 | 1.000 | 500 | 2.0 |"
        in lines
    )
    assert "| tercet | sentence-transformers torch | 6 | 6 | met | 9 | not met |" in lines
    assert "**Not run**" not in lines


@pytest.mark.parametrize("outputs", [[[1.0, 2.0], [1.0]], [[1.0, float("nan")]], [[None]]])
def test_scores_that_are_ragged_or_no_numbers_are_a_failure(outputs: list[object]) -> None:
    with pytest.raises(PeerError):
        outputs_of("rerank", outputs)


def test_a_worker_scores_everything_in_order_and_is_measured(tmp_path: Path) -> None:
    found = measure(Path(sys.executable), worker(tmp_path), task(tmp_path))
    assert found.outputs.tolist() == [[2, 1], [1, 3]]
    assert found.per_second > 0
    assert 0 < found.start_seconds < 60
    assert 1 < found.peak_mb < 500
    vectors = measure(Path(sys.executable), worker(tmp_path), task(tmp_path, "embed")).outputs
    assert vectors.tolist() == [[2, 0], [1, 0], [1, 0]]


def test_a_worker_that_fails_says_why_in_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="it ended with 1: RuntimeError: no such kernel"):
        measure(Path(sys.executable), worker(tmp_path, load="raise RuntimeError('no such kernel')"), task(tmp_path))


@pytest.mark.parametrize(
    ("words", "said"),
    [("ValueError: no\nINFO: bye\n\n", "ValueError: no"), ("one\n two \n", "two"), ("", "it said nothing")],
)
def test_last_words_are_an_error_where_there_is_one(words: str, said: str) -> None:
    assert last_line(words) == said


def test_peers_that_fail_stop_no_other(tmp_path: Path) -> None:
    measured = Rounds(tmp_path, tmp_path, WORK, lambda line: None)
    missing = Peer("without weights", "rerank", OWN, "with_tercet", "auto", weights="nothing/here")
    broken = Peer("without a worker", "rerank", OWN, "with_nothing", "auto", weights=".")
    measured.weights.mkdir()
    measured.run([missing, broken], 2)
    reasons = {name: why for (_, name), why in measured.results.not_run.items()}
    assert set(reasons) == {missing.name, broken.name}
    assert reasons[missing.name].startswith("its weights were not made")
    assert "with_nothing.py" in reasons[broken.name]
    assert measured.results.samples == {}


def test_a_service_is_asked_by_one_client_and_by_many(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(SERVER)

    def start(port: int) -> Service:
        return Service([sys.executable, str(script), str(port)], {}, "/rerank", lambda score: score / 2)

    found = measure_service(start, WORK.requests["rerank"], tmp_path / "log")
    assert set(found) == set(N_CLIENTS)
    assert all(each.outputs.tolist() == [[2, 1], [1, 3]] and each.per_second > 0 for each in found.values())


def test_a_service_that_ends_is_a_failure_with_its_last_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('there is no port left')"]
    with pytest.raises(PeerError, match="it ended with 1: there is no port left"):
        measure_service(lambda port: Service(command, {}, "/", float), WORK.requests["rerank"], tmp_path / "log")


def test_an_environment_that_has_its_packages_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "installed").write_text("one==1\ntwo==2")
    assert make_environment(tmp_path, ["one==1", "two==2"]) == python_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["installed"]


def test_the_tokenizer_of_the_peers_cuts_and_pads_nothing_by_itself(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(BUNDLED / BUNDLED_CROSS_ENCODER / TOKENIZER_FILE))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(length=128)
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    plain = Tokenizer.from_str(plain_tokenizer(tmp_path / TOKENIZER_FILE).decode())
    assert [len(plain.encode(text).ids) for text in ("bee", "bee " * 300)] == [3, 302]
