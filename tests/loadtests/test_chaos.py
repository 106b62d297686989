"""The parts of the chaos suite that are logic: what it sends, how it judges, and what it prints."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from scenarios.crowds import KINDS
from scenarios.damage import flip, truncate
from scenarios.documents import write_documents
from scenarios.malformed import MAKERS, MARK, Malformed, fault_of, malformed_requests
from scenarios.report import CannotRunError, Report, Scenario, is_bad, table

ROOT = Path(__file__).parents[2]


def scenario(name: str = "a storm") -> Scenario:
    return Scenario(name, "It rains.", "the lamp burns.", lambda folder, report: None)


def test_malformed_requests_are_the_same_for_a_seed_and_of_all_kinds_in_turn() -> None:
    first, again, other = (list(malformed_requests(200, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    kinds = Counter(each.kind for each in first)
    assert len(kinds) == len(MAKERS) == KINDS
    assert max(kinds.values()) - min(kinds.values()) <= 1


def test_malformed_requests_of_each_kind_that_can_carry_what_must_not_be_in_a_log() -> None:
    sent = list(malformed_requests(2_000, seed=3))
    marked = {each.kind for each in sent if MARK.encode() in each.content}
    unreadable = {"noise", "TLS", "compressed", "compressed, unsaid", "announced as too large"}
    assert {each.kind for each in sent} - marked == unreadable


def test_a_request_that_is_http_announces_the_length_that_it_has() -> None:
    for each in malformed_requests(2_000, seed=4):
        head, _, body = each.content.partition(b"\r\n\r\n")
        lengths = [line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
        if each.is_http and each.kind != "wrong content type":
            assert [int(length) for length in lengths] == [len(body)], each.kind


@pytest.mark.parametrize(
    ("is_http", "status", "is_fault"),
    [(True, 400, False), (True, 499, False), (True, None, True), (False, None, False), (False, 404, False),
     (True, 200, True), (False, 200, True), (False, 500, True), (True, 302, True), (True, -1, True)],
)  # fmt: skip
def test_a_malformed_request_is_answered_with_4xx_or_closed_where_it_is_no_http(
    is_http: bool, status: int | None, is_fault: bool
) -> None:
    assert (fault_of(Malformed("kind", b"", is_http=is_http), status) is not None) == is_fault


def test_what_was_acknowledged_and_is_lost_is_bad() -> None:
    report = Report()
    report.keep(["a", "b", "c"], lambda name: name != "b", "job")
    assert (report.acknowledged, report.lost, report.verdict) == (3, 1, "bad")
    assert list(report.faults) == ["job b was acknowledged and is lost"]


def test_a_verdict_is_good_until_a_check_fails_even_of_what_could_not_be_run() -> None:
    report = Report()
    assert report.check(True, "no")
    report.saw_only({"200": 3, "429": 1}, ["200", "429"])
    report.keep(["a"], lambda name: True, "key")
    verdicts = [report.verdict]
    report.not_run = str(CannotRunError("there is no disk"))
    verdicts.append(report.verdict)
    assert not is_bad([report])
    report.saw_only({"500": 2}, ["200"])
    verdicts.append(report.verdict)
    assert verdicts == ["good", "not run", "bad"]
    assert report.faults == {"clients saw 500": 2}
    assert report.seen == {"200": 3, "429": 1, "500": 2}
    assert is_bad([Report(), report])


def test_the_worst_time_counts() -> None:
    report = Report()
    for value in (2.0, 5.0, 3.0):
        report.was_ready_after(value)
        report.probed(10 * value)
    assert (report.ready_seconds, report.healthz_max_ms) == (5.0, 50.0)


def test_the_table_has_a_row_for_each_and_says_what_is_expected_and_wrong() -> None:
    good, bad, not_run = Report(acknowledged=4, ready_seconds=1.25), Report(), Report(not_run="There is no disk.")
    good.saw_only({"200": 1_234, "ReadError": 2}, ["200", "ReadError"])
    for _ in range(3):
        bad.check(False, "the lamp went out")
    text = table([(scenario("a"), good, 1.6), (scenario("b"), bad, 0), (scenario("c"), not_run, 0)])
    assert "| a | good | 4 | 0 | 1.2 | – | 200 1,234, ReadError 2 | 2 |" in text
    assert "**b**: It rains. Expected: the lamp burns.\n- WRONG, 3 times: the lamp went out" in text
    assert "| c | not run |" in text
    assert "- not run: There is no disk." in text


def test_documents_are_the_same_for_a_seed_and_each_unlike_the_others(tmp_path: Path) -> None:
    first, again = (write_documents(tmp_path / name, 50, seed=3).read_text() for name in ("a", "b"))
    assert first == again
    documents = [json.loads(line) for line in first.splitlines()]
    assert len({document["id"] for document in documents}) == len({document["text"] for document in documents}) == 50


def test_a_file_is_damaged_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    inode = path.stat().st_ino
    flip(path)
    assert path.read_bytes() == b"abceef"
    truncate(path)
    assert path.read_bytes() == b"abc"
    assert path.stat().st_ino == inode


def test_an_unknown_scenario_is_one_sentence() -> None:
    command = [sys.executable, str(ROOT / "loadtests" / "chaos.py"), "--only", "meteor"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "There is no scenario 'meteor'; there are: kill -9 of the service, " in refused.stderr
