"""`tercet calibrate`: what is learned is stored, and a run that fails leaves the model as it was."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.folder import ModelFolder, open_model_folder
from models.reader import Reader
from models.session import Runtime
from service.cli import run
from service.commands.calibrate import _writable
from service.commands.faults import CommandError
from tests.conftest import WORDS, TinyModels

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tercet(
    tiny_models: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return the command line in this process with the tiny models."""
    folders = {"DUAL_ENCODER": tiny_models.dual_encoder, "CROSS_ENCODER": tiny_models.cross_encoder}
    for name, path in {**folders, "READER": tiny_models.reader, "DATA_PATH": tmp_path / "data"}.items():
        monkeypatch.setenv(f"TERCET_{name}", str(path))
    monkeypatch.setenv("TERCET_N_THREADS", "1")

    def command(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(each) for each in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return command


def passages(n: int) -> list[str]:
    return [" ".join(WORDS[(i * 7 + j * (i % 5 + 1)) % len(WORDS)] for j in range(12)) for i in range(n)]


def write_questions(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def question(number: int, passage: str, *answers: tuple[int, str]) -> dict[str, Any]:
    return {
        "id": f"q{number}",
        "title": "",
        "context": passage,
        "question": " ".join(passage.split()[:3]),
        "answers": [{"answer_start": start, "text": text} for start, text in answers],
    }


def planted(reader_folder: Path, path: Path, n: int = 60) -> tuple[Path, float]:
    """Write questions that the reader answers rightly where its margin is in the upper half, and that middle margin."""
    reader = Reader(open_model_folder(str(reader_folder), "reader"), Runtime(1))
    records = [question(number, passage) for number, passage in enumerate(passages(n))]
    best = [reader.read(each["question"], [each["context"]]).answers[0] for each in records]
    margins = sorted(each.null_margin for each in best)
    middle = (margins[n // 2 - 1] + margins[n // 2]) / 2
    for record, answer in zip(records, best, strict=True):
        if answer.null_margin > middle:
            record["answers"] = [{"answer_start": answer.start, "text": answer.text}]
    return write_questions(path, records), middle


@pytest.fixture
def reader(tiny_models: TinyModels, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_models.reader, tmp_path / "reader"))


@pytest.fixture
def cross_encoder(tiny_models: TinyModels, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_models.cross_encoder, tmp_path / "cross_encoder"))


def test_a_reader_learns_the_threshold_that_parts_right_from_unanswerable(
    tercet: Run, reader: Path, tmp_path: Path
) -> None:
    data, middle = planted(reader, tmp_path / "dev.jsonl")
    before = open_model_folder(str(reader), "reader").settings
    code, out, err = tercet("calibrate", "reader", "--data", data, "--model", reader, "--json")
    assert code == 0, err
    assert "Warning: 60 questions is little to learn from" in err
    result = json.loads(out)
    assert result["calibration"]["threshold"] == pytest.approx(middle)
    assert (result["f1"], result["coverage"], result["precision"]) == pytest.approx((1, 0.5, 1))
    after = open_model_folder(str(reader), "reader")
    assert after.fingerprint == result["fingerprint"]
    assert after.settings.answer is not None
    assert after.settings.answer.model_dump() == result["calibration"]
    assert (after.settings.answer.origin, after.settings.answer.n_examples) == ("dev.jsonl", 60)
    assert after.settings.model_copy(update={"answer": before.answer}) == before


def test_several_files_are_one_set_and_a_table_shows_what_was_found(tercet: Run, reader: Path, tmp_path: Path) -> None:
    data, _ = planted(reader, tmp_path / "dev.jsonl", 120)
    records = [json.loads(line) for line in data.read_text().splitlines()]
    files = [
        write_questions(tmp_path / name, own) for name, own in (("a.jsonl", records[:70]), ("b.jsonl", records[70:]))
    ]
    code, out, err = tercet("calibrate", "reader", "--data", files[0], "--data", files[1], "--model", reader)
    assert code == 0, err
    assert "Warning" not in err
    for part in ("120, 60 of them answerable", "100.0% of the answers right", "isotonic", "Reliability, held out"):
        assert part in out
    answer = open_model_folder(str(reader), "reader").settings.answer
    assert answer is not None
    assert answer.origin == "a.jsonl, b.jsonl"


def test_a_failing_run_leaves_the_model_as_it_was(tercet: Run, reader: Path, tmp_path: Path) -> None:
    data, _ = planted(reader, tmp_path / "dev.jsonl")
    records = [json.loads(line) for line in data.read_text().splitlines()]
    wrong = [record | {"answers": [{"answer_start": 0, "text": record["context"][:1]}]} for record in records[:40]]
    half = write_questions(tmp_path / "half.jsonl", [record for record in records if record["answers"]])
    hard = write_questions(tmp_path / "hard.jsonl", [*wrong, *(record | {"answers": []} for record in records[40:])])
    empty = write_questions(tmp_path / "empty.jsonl", [])
    before = {path.name: path.read_bytes() for path in reader.iterdir()}
    for file, arguments, reason in (
        (half, [], "holds no unanswerable question"),
        (hard, ["--precision", "0.99"], "No threshold reaches a precision of 0.99"),
        (empty, [], "holds no question"),
        (tmp_path / "gone.jsonl", [], "gone.jsonl"),
    ):
        code, out, err = tercet("calibrate", "reader", "--data", file, "--model", reader, *arguments)
        assert (code, out) == (1, ""), file
        assert reason in err.strip().splitlines()[-1]
        assert "Traceback" not in err
    assert {path.name: path.read_bytes() for path in reader.iterdir()} == before


def test_a_reranker_learns_from_a_collection_and_from_questions(
    tercet: Run, cross_encoder: Path, tmp_path: Path
) -> None:
    texts = passages(24)
    dataset = write_beir(tmp_path / "beir", "test")
    records = [question(i, text, (0, text.split()[0])) for i, text in enumerate(texts)]
    data = write_questions(tmp_path / "squad.jsonl", [each | {"question": each["context"]} for each in records])
    before = open_model_folder(str(cross_encoder), "cross-encoder").settings
    code, out, err = tercet(
        *("calibrate", "reranker", "--dataset", f"{dataset}:test", "--data", data),
        *("--model", cross_encoder, "--queries", "10", "--json"),
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["n_queries"] == 20
    assert result["n_relevant"] == 20
    mix, pair = result["mix"]["calibration"], result["pair"]["calibration"]
    assert result["n_candidates"] == mix["n_examples"] == pair["n_examples"]
    assert 0 <= result["pair"]["platt"]["calibration_error"] <= 1
    assert "Warning: 20 queries is little to learn from" in err
    after = open_model_folder(str(cross_encoder), "cross-encoder").settings
    assert after.relevance is not None
    assert after.pair_relevance is not None
    assert (after.relevance.model_dump(), after.pair_relevance.model_dump()) == (mix, pair)
    assert after.relevance.origin == "queries of beir:test, squad.jsonl, with tiny-dual-encoder"
    assert after.model_copy(update={"relevance": before.relevance, "pair_relevance": None}) == before


def write_beir(folder: Path, split: str) -> Path:
    """Write a collection whose every second document is asked for."""
    texts = passages(24)
    (folder / "qrels").mkdir(parents=True)
    asked = range(0, 24, 2)
    write_questions(
        folder / "corpus.jsonl", [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)]
    )
    write_questions(folder / "queries.jsonl", [{"_id": f"q{i}", "text": texts[i]} for i in asked])
    rows = "".join(f"q{i}\td{i}\t1\n" for i in asked)
    (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    return folder


def test_a_folder_with_a_colon_is_taken_as_it_stands_and_n_queries_of_it(
    tercet: Run, cross_encoder: Path, tmp_path: Path
) -> None:
    dataset = write_beir(tmp_path / "co:lon" / "x", "dev")
    code, out, err = tercet("calibrate", "reranker", "--dataset", f"{dataset}#5", "--model", cross_encoder, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["n_queries"], result["mix"]["calibration"]["origin"]) == (
        5,
        "queries of x:dev, with tiny-dual-encoder",
    )


def test_questions_whose_ids_repeat_or_hold_tabs_are_as_many_queries(
    tercet: Run, cross_encoder: Path, tmp_path: Path
) -> None:
    texts = passages(12)
    records = [question(0, text, (0, text.split()[0])) | {"question": text} for text in texts]
    records[3]["id"] = "a\tb"
    data = write_questions(tmp_path / ".hidden.jsonl", records)
    code, out, err = tercet("calibrate", "reranker", "--data", f"{data}#10", "--model", cross_encoder, "--json")
    assert code == 0, err
    assert json.loads(out)["n_queries"] == 10


def test_a_file_whose_name_is_not_utf_8_is_learned_from(tercet: Run, reader: Path, tmp_path: Path) -> None:
    data, _ = planted(reader, tmp_path / "dev.jsonl")
    odd = data.rename(os.fsdecode(os.fsencode(tmp_path) + b"/de\xffv.jsonl"))
    code, out, err = tercet("calibrate", "reader", "--data", f"{odd}#50", "--model", reader, "--json")
    assert code == 0, err
    assert (json.loads(out)["n_questions"], json.loads(out)["calibration"]["origin"]) == (50, "de\\xffv.jsonl")
    answer = open_model_folder(str(reader), "reader").settings.answer
    assert answer is not None
    assert answer.origin == "de\\xffv.jsonl"


def test_a_single_span_is_one_sentence(tercet: Run, reader: Path, tmp_path: Path) -> None:
    text = passages(1)[0]
    silent = question(1, "") | {"question": "where is it"}
    data = write_questions(tmp_path / "dev.jsonl", [question(0, text, (0, text.split()[0])), silent])
    code, _, err = tercet("calibrate", "reader", "--data", data, "--model", reader)
    assert code == 1
    assert "1 of 2 passages hold a span; at least 2 are needed" in err


def test_a_reranker_without_judged_queries_stays_as_it_was(tercet: Run, cross_encoder: Path, tmp_path: Path) -> None:
    data = write_questions(tmp_path / "dev.jsonl", [question(i, text) for i, text in enumerate(passages(4))])
    before = (cross_encoder / "model.json").read_bytes()
    for arguments in (["--data", data], ["--dataset", tmp_path / "nowhere"]):
        code, out, err = tercet("calibrate", "reranker", *arguments, "--model", cross_encoder)
        assert (code, out) == (1, "")
        assert "Traceback" not in err
    assert (cross_encoder / "model.json").read_bytes() == before


def test_a_folder_that_cannot_be_written_is_told_before_any_work(tiny_models: TinyModels) -> None:
    settings = open_model_folder(str(tiny_models.reader), "reader").settings
    with pytest.raises(CommandError, match="/proc cannot be written"):
        _writable(ModelFolder(Path("/proc"), settings))


@pytest.mark.parametrize(
    "arguments",
    [
        ["calibrate"],
        ["calibrate", "reader"],
        ["calibrate", "reranker"],
        ["calibrate", "reader", "--data", "x", "--precision", "1.5"],
        ["calibrate", "reranker", "--dataset", "x", "--queries", "1"],
    ],
)
def test_wrong_use_is_told(tercet: Run, arguments: list[str]) -> None:
    code, _, err = tercet(*arguments)
    assert code == 2
    assert "Traceback" not in err


def test_a_model_of_another_kind_is_refused(tercet: Run, cross_encoder: Path, tmp_path: Path) -> None:
    data = write_questions(tmp_path / "dev.jsonl", [question(0, "lima is the capital of peru")])
    code, _, err = tercet("calibrate", "reader", "--data", data, "--model", cross_encoder)
    assert code == 1
    assert "holds a cross-encoder; a reader was asked for" in err
