"""`tercet train` as a user runs it, in a process of its own, on a few examples and tiny models."""

import csv
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.folder import Kind
from tests.service.commands import Tercet, tercet_with
from tests.service.conftest import TinyModels

WORDS = ["lima", "porto", "tower", "harbour", "library", "river", "lamp", "map"]


@pytest.fixture(scope="module")
def tercet(tmp_path_factory: pytest.TempPathFactory, tiny_models: TinyModels) -> Tercet:
    return tercet_with(tiny_models, tmp_path_factory.mktemp("train"))


def write_lines(path: Path, records: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_questions(path: Path) -> Path:
    return write_lines(
        path,
        [
            {
                "id": f"q{i}",
                "title": f"t{i % 4}",
                "context": f"{word} is the town of the {other} and the sea",
                "question": f"where is the {other}",
                "answers": [{"text": word, "answer_start": 0}] if i % len(WORDS) % 3 else [],
            }
            for i, (word, other) in enumerate(zip(WORDS * 3, [*WORDS[1:], WORDS[0]] * 3, strict=True))
        ],
    )


def log_of(run: Path) -> list[dict[str, str]]:
    with (run / "log.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def quick(init: Path, out: Path, *more: str) -> list[str]:
    return ["--init", str(init), "--out", str(out), "--batch-tokens", "512", "--learning-rate", "0.003", *more]


def test_a_reader_is_trained_shown_logged_and_its_best_kept(
    tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    data, out = write_questions(tmp_path / "train.jsonl"), tmp_path / "run"
    options = quick(tiny_checkpoint("dual-encoder"), out, "--epochs", "3", "--checks", "2", "--moved", "2", "--sanity")
    rate = ["--learning-rate", "0.005", "--head-learning-rate", "0.005"]
    done = tercet("train", "reader", "--data", data, "--dev", data, *options, *rate)
    assert done.code == 0, done.stderr
    assert "26 windows, 11 of them without an answer" in done.stderr
    assert "Learned a few examples by heart" in done.stderr
    assert "no answer in [CLS] where is the" in done.stderr
    assert re.search(r"'(lima|porto|tower|harbour|library|river|lamp|map)' in \[CLS\] where is the", done.stderr)
    assert "[SEP]" in done.stderr
    assert f"The best checkpoint is in {out / 'best'}, f1_balanced" in done.stderr
    assert (out / "best" / "model.safetensors").is_file()
    checked = [json.loads(row["dev"]) for row in log_of(out) if row["dev"]]
    assert len(checked) == 2
    assert all(set(measures) == {"f1_balanced", "has_answer_f1"} for measures in checked)
    curves = ElementTree.fromstring((out / "curves.svg").read_text())
    assert {"loss", "run: f1_balanced", "run: has_answer_f1"} <= {each.text for each in curves.iter() if each.text}


def test_a_run_killed_at_any_step_goes_on_to_the_same_log(
    tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    data = write_questions(tmp_path / "train.jsonl")
    init = tiny_checkpoint("dual-encoder")

    def arguments(out: Path) -> list[str]:
        return ["train", "reader", "--data", str(data), *quick(init, out, "--epochs", "40", "--checks", "20")]

    assert tercet(*arguments(tmp_path / "whole")).code == 0
    process = tercet.start(*arguments(tmp_path / "killed"))
    deadline = time.monotonic() + 60
    log = tmp_path / "killed" / "log.csv"
    while not (log.is_file() and len(log.read_text().splitlines()) > 1):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert tercet(*arguments(tmp_path / "killed")).code == 0
    again = tercet(*arguments(tmp_path / "killed"), "--sanity")
    assert again.code == 0, again.stderr
    assert re.search(rf"The run in {tmp_path / 'killed'} has taken \d+ steps already\.", again.stderr)
    assert "by heart" not in again.stderr  # that it can learn was seen when it began
    whole, killed = (
        [(row["step"], row["loss"], row["dev"]) for row in log_of(tmp_path / name)] for name in ("whole", "killed")
    )
    assert killed == whole


def test_a_reranker_learns_from_questions_and_triples(
    tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    questions = write_questions(tmp_path / "questions.jsonl")
    triples = write_lines(
        tmp_path / "triples.jsonl",
        [
            {
                "anchor": f"where is {w}",
                "positive": f"the {w} of the sea",
                "negatives": [f"a row {n}" for n in range(9)],
            }
            for w in WORDS
        ],
    )
    out = tmp_path / "run"
    options = quick(tiny_checkpoint("cross-encoder"), out, "--negatives", "1", "--checks", "1")
    sources = ["--data", f"{questions}#5", "--data", str(triples), "--dev", f"{triples}#3"]
    done = tercet("train", "reranker", *sources, *options)
    assert done.code == 0, done.stderr
    assert ", mrr " in done.stderr
    assert (out / "best" / "model.safetensors").is_file()


def test_a_dual_encoder_is_trained(tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]) -> None:
    triples = write_lines(tmp_path / "t.jsonl", [[f"where is {w}", f"the {w} of the sea", "a row"] for w in WORDS])
    options = quick(tiny_checkpoint("dual-encoder"), tmp_path / "run", "--negatives", "1", "--epochs", "3")
    done = tercet("train", "dual", "--data", triples, *options)
    assert done.code == 0, done.stderr
    assert float(log_of(tmp_path / "run")[-1]["loss"]) < 3


def test_two_checkpoints_are_averaged_into_one_that_can_be_exported(
    tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    first, second, out = tiny_checkpoint("reader"), tmp_path / "second", tmp_path / "mean"
    shutil.copytree(first, second)
    weights = load_file(first / "model.safetensors")
    save_file({name: 1.02 * weight for name, weight in weights.items()}, second / "model.safetensors", {"format": "pt"})
    done = tercet("train", "average", first, second, "--out", out)
    assert done.code == 0, done.stderr
    mean = load_file(out / "model.safetensors")
    assert all(torch.allclose(mean[name], 1.01 * weight) for name, weight in weights.items())
    assert "Writing" not in done.stderr
    assert tercet("export", out, "--out", tmp_path / "exported").code == 0
    again = tercet("train", "average", first, second, "--out", out)
    assert (again.code, again.sentence) == (1, f"{out} is not an empty folder; name another one.")


def test_checkpoints_that_do_not_fit_together_are_not_averaged(
    tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    reader = tiny_checkpoint("reader")
    alone = tercet("train", "average", reader, "--out", tmp_path / "mean")
    assert (alone.code, "needs at least 2 checkpoints, not 1" in alone.sentence) == (1, True)
    other = tercet("train", "average", reader, tiny_checkpoint("cross-encoder"), "--out", tmp_path / "mean")
    assert (other.code, "lacks weights of a reader: qa_outputs" in other.sentence) == (1, True)
    words = tmp_path / "words"
    shutil.copytree(reader, words)
    (words / "tokenizer.json").write_text((words / "tokenizer.json").read_text().replace("[UNK]", "[NIL]"))
    tokens = tercet("train", "average", reader, words, "--out", tmp_path / "mean")
    assert (tokens.code, f"{words} has another tokenizer.json than {reader}" in tokens.sentence) == (1, True)
    stranger = tmp_path / "stranger"
    shutil.copytree(reader, stranger)
    torch.manual_seed(1)
    other_weights = {name: torch.randn_like(each) for name, each in load_file(reader / "model.safetensors").items()}
    save_file(other_weights, stranger / "model.safetensors", {"format": "pt"})
    apart = tercet("train", "average", reader, stranger, "--out", tmp_path / "mean")
    assert (apart.code, f"{reader} and {stranger} did not begin at the same checkpoint" in apart.sentence) == (1, True)
    assert not (tmp_path / "mean").exists()


def test_curves_of_runs_with_one_name_are_all_drawn(
    tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    for name in ("one", "two"):
        shutil.copytree(tiny_checkpoint("reader"), tmp_path / name / "run")
        (tmp_path / name / "run" / "log.csv").write_text('1,1,0.5,9,0.1,"{""f1"": 0.5}"\r\nx,y\r\n')
    done = tercet("train", "average", tmp_path / "one" / "run", tmp_path / "two" / "run", "--out", tmp_path / "mean")
    assert done.code == 0, done.stderr
    curves = (tmp_path / "mean" / "curves.svg").read_text()
    assert "one/run: f1" in curves
    assert "two/run: f1" in curves


def test_the_folder_is_looked_at_before_the_data(
    tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "log.csv").write_text("mine")
    write_lines(tmp_path / "bad.jsonl", [{"no": "question"}])
    for kind in ("reader", "reranker", "dual"):
        done = tercet("train", kind, "--data", tmp_path / "bad.jsonl", "--out", tmp_path / "mine")
        assert (done.code, f"{tmp_path / 'mine'} holds log.csv but no training run" in done.sentence) == (1, True)
    assert (tmp_path / "mine" / "log.csv").read_text() == "mine"


def test_as_many_questions_are_taken_as_were_asked_for(
    tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    data = write_questions(tmp_path / "train#1.jsonl")
    options = quick(tiny_checkpoint("dual-encoder"), tmp_path / "run", "--checks", "1")
    done = tercet("train", "reader", "--data", f"{data}#5", "--data", data, "--dev", f"{data}#2", *options)
    assert done.code == 0, done.stderr
    assert "29 windows" in done.stderr
    [dev] = [json.loads(row["dev"]) for row in log_of(tmp_path / "run") if row["dev"]]
    assert set(dev) == {"f1_balanced", "has_answer_f1"}


def test_judgements_that_are_left_out_are_counted(
    tercet: Tercet, tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    beir = tmp_path / "be:ir"
    (beir / "qrels").mkdir(parents=True)
    write_lines(beir / "corpus.jsonl", [{"_id": w, "title": "", "text": f"the {w} of the sea"} for w in WORDS])
    write_lines(beir / "queries.jsonl", [{"_id": w, "text": f"where is the {w}"} for w in WORDS])
    rows = [f"{w}\t{w if n % 2 else 'gone'}\t1" for n, w in enumerate(WORDS)]
    (beir / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows, ""]))
    options = quick(tiny_checkpoint("cross-encoder"), tmp_path / "run", "--negatives", "1", "--checks", "1")
    done = tercet("train", "reranker", "--dataset", beir, *options)
    assert done.code == 0, done.stderr
    assert f"{beir}: 4 of 8 judgements are left out" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--epochs", "inf"),
        ("--epochs", "nan"),
        ("--seed", "20261130123456"),
        ("--learning-rate", "inf"),
        ("--head-learning-rate", "2"),
        ("--checks", "1000000000"),
    ],
)
def test_a_number_beyond_its_bounds_is_wrong_use(tercet: Tercet, tmp_path: Path, option: str, value: str) -> None:
    data = write_questions(tmp_path / "train.jsonl")
    done = tercet("train", "reader", "--data", data, "--out", tmp_path / "run", option, value)
    assert (done.code, f"Invalid value for '{option}'" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reader", "--data", "{dir}/none.jsonl"], "none.jsonl is not there"),
        (["reader", "--data", "{dir}/good.jsonl", "--dev", "{dir}/empty.jsonl"], "holds no question to measure on"),
        (["reader", "--data", "{dir}/good.jsonl#0"], "what follows # is '0', not a number of at least 1"),
        (["reader", "--data", "{dir}/bad.jsonl"], "bad.jsonl, line 1: the answer at 1 of question 'x'"),
        (["reader", "--data", "{dir}/empty.jsonl"], "The data holds no question to learn from"),
        (["reader", "--data", "{dir}/good.jsonl", "--init", "nothing"], "--init 'nothing' is neither"),
        (["reranker", "--data", "{dir}/none.jsonl"], "none.jsonl is not there"),
        (["reranker", "--data", "{dir}/good.jsonl#x"], "what follows # is 'x', not a number of at least 1"),
        (["reranker", "--dataset", "{dir}/good.jsonl"], "good.jsonl is no folder"),
        (["dual", "--data", "{dir}/empty.jsonl"], "The data gives no query with a relevant passage"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(
    tercet: Tercet, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    bad = {"id": "x", "context": "abc", "question": "q", "answers": [{"text": "a", "answer_start": 1}]}
    write_lines(tmp_path / "bad.jsonl", [bad])
    write_lines(tmp_path / "empty.jsonl", [])
    write_questions(tmp_path / "good.jsonl")
    done = tercet("train", *(each.format(dir=tmp_path) for each in arguments), "--out", tmp_path / "run")
    assert done.code == 1
    assert sentence in done.sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["reader", "reranker", "dual"])
@pytest.mark.parametrize("content", ["", "{}"])
def test_bad_data_need_not_wait_for_torch(tmp_path: Path, kind: str, content: str) -> None:
    (tmp_path / "data.jsonl").write_text(content)
    arguments = ["train", kind, "--data", str(tmp_path / "data.jsonl"), "--out", str(tmp_path / "run")]
    script = f"import sys; from service.cli import run; print(run({arguments!r}), *{{'torch'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "1\n"
