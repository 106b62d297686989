"""Training learns, resumes, keeps its best, and refuses data that does not match its text."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.checkpoint import open_checkpoint
from models.dual_encoder import DualEncoder
from models.errors import DataError, TrainingError
from models.export import export
from models.folder import BEST_FOLDER, Kind, open_model_folder
from models.session import Runtime
from models.tokenization import Lengths, ModelInput, Tokenizer
from models.training.batches import outputs_of, pad, padded_width, token_budget_batches
from models.training.beir import read_beir
from models.training.checkpoints import load_start
from models.training.data import (
    LabelledQuestion,
    Triple,
    read_questions,
)
from models.training.dual import dual_task
from models.training.fast import ByteDropout, load_for_training
from models.training.groups import Group, groups_from_beir, groups_from_questions, groups_from_triples
from models.training.log import Progress
from models.training.loop import Pace, Task, train
from models.training.mining import Miner, Wanted, bm25_hits
from models.training.reader import LENGTHS, reader_task, span_examples
from models.training.recipe import Lesson, NullSide, Recipe
from models.training.records import Source
from models.training.reranker import RetrievalTerm, reranker_task
from models.training.sanity import overfit
from models.training.sections import pairs_from_documents
from models.training.unanswerable import edited_questions, moved_questions
from models.training.weights import onnx_weights
from tests.conftest import TinyModels

TOWNS = ["lima", "porto", "tower", "harbour", "library", "river"]


def write_questions(path: Path) -> Path:
    records = [
        {
            "id": f"q{i}",
            "title": f"t{i % 2}",
            "context": f"{town} is the town of the {animal} and the sea",
            "question": f"where is the {animal}",
            "answers": [{"text": town, "answer_start": 0}],
            "set": "qed_train",
        }
        for i, (town, animal) in enumerate(zip(TOWNS, ["bees", "ship", "keeper", "storm", "lamp", "dict"], strict=True))
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def losses(out: Path) -> list[float]:
    with (out / "log.csv").open(newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def tiny_recipe(*, seed: int = 1, epochs: float = 3, batch_tokens: int = 300, rate: float = 1e-3) -> Recipe:
    return Recipe(seed, epochs, batch_tokens, rate, rate)


@pytest.fixture
def tiny_reader_task(tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]) -> Callable[[Recipe], Task]:
    questions = read_questions(write_questions(tmp_path / "train.jsonl"))
    init = str(tiny_checkpoint("dual-encoder"))
    return lambda recipe: reader_task(questions, questions, init, recipe, Lesson(NullSide(3, 3)))


@pytest.fixture
def tiny_miner(tiny_models: TinyModels) -> Miner:
    return Miner(DualEncoder(open_model_folder(str(tiny_models.dual_encoder), "dual-encoder"), Runtime(1)))


GROUPS = [
    Group(f"where is {town}", f"the {town} of the sea", tuple(f"the {w} was missing" for w in ("lamp", "map", "file")))
    for town in TOWNS
]


def test_the_reader_learns_by_heart_and_its_dev_measure_shows_it(
    tmp_path: Path, tiny_reader_task: Callable[[Recipe], Task]
) -> None:
    recipe = tiny_recipe(epochs=150, batch_tokens=2000, rate=5e-3)
    best = train(tiny_reader_task(recipe), recipe, tmp_path / "out")
    assert losses(tmp_path / "out")[-1] < 0.3 < losses(tmp_path / "out")[0]
    assert best["has_answer_f1"] == 1.0
    assert (tmp_path / "out" / BEST_FOLDER / "model.safetensors").is_file()


def test_the_reranker_learns_groups_by_heart(
    tmp_path: Path, tiny_miner: Miner, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    recipe = tiny_recipe(epochs=100, batch_tokens=2000, rate=5e-3)
    init = str(tiny_checkpoint("dual-encoder"))
    task = reranker_task(GROUPS, GROUPS, RetrievalTerm(tiny_miner, 5.0), init, recipe)
    assert train(task, recipe, tmp_path / "out") == {"mrr": 1.0, "mrr_alone": 1.0}
    assert losses(tmp_path / "out")[-1] < 0.3 < losses(tmp_path / "out")[0]


def test_the_dual_encoder_learns_groups_by_heart(tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]) -> None:
    recipe = tiny_recipe(epochs=60, batch_tokens=2000, rate=5e-3)
    best = train(dual_task(GROUPS, GROUPS, str(tiny_checkpoint("dual-encoder")), recipe), recipe, tmp_path / "out")
    assert best == {"mrr": 1.0}


def test_equal_seeds_train_equal_models_and_others_do_not(
    tmp_path: Path, tiny_reader_task: Callable[[Recipe], Task]
) -> None:
    for name, seed in (("one", 5), ("two", 5), ("other", 6)):
        recipe = tiny_recipe(seed=seed)
        train(tiny_reader_task(recipe), recipe, tmp_path / name, pace=Pace(log_steps=1))
    assert losses(tmp_path / "one") == losses(tmp_path / "two") != losses(tmp_path / "other")


class KilledError(Exception):
    """Stands for the end of the process."""


def test_a_killed_run_goes_on_and_ends_as_one_that_was_not(
    tmp_path: Path, tiny_reader_task: Callable[[Recipe], Task]
) -> None:
    recipe = tiny_recipe(batch_tokens=100)
    whole = tiny_reader_task(recipe)
    train(whole, recipe, tmp_path / "whole", pace=Pace(log_steps=1))

    def die(progress: Progress) -> None:
        if progress.step == progress.n_steps - 2:
            raise KilledError

    with pytest.raises(KilledError):
        train(tiny_reader_task(recipe), recipe, tmp_path / "killed", pace=Pace(save_seconds=0, log_steps=1), report=die)
    resumed = tiny_reader_task(recipe)
    steps: list[int] = []
    train(
        resumed,
        recipe,
        tmp_path / "killed",
        pace=Pace(log_steps=1),
        report=lambda progress: steps.append(progress.step),
    )
    assert steps[0] > 1
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    for mine, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert mine.equal(theirs)


def test_the_best_checkpoint_is_kept_and_not_the_last(
    tmp_path: Path, tiny_reader_task: Callable[[Recipe], Task]
) -> None:
    recipe = tiny_recipe()
    values = iter([0.2, 0.9, 0.5])
    saved: list[int] = []
    task = tiny_reader_task(recipe)
    task = replace(task, dev_measures=lambda: {"f1": next(values)}, save=lambda path: saved.append(1))
    assert train(task, recipe, tmp_path / "out", pace=Pace(dev_checks=3)) == {"f1": 0.9}
    assert len(saved) == 2


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path, tiny_reader_task: Callable[[Recipe], Task]) -> None:
    recipe = tiny_recipe()
    task = tiny_reader_task(recipe)
    broken = replace(task, batch_loss=lambda indices: task.batch_loss(indices) * float("nan"))
    with pytest.raises(TrainingError, match="loss at step 1 is nan"):
        train(broken, recipe, tmp_path / "out")


def test_sanity_passes_what_can_learn_and_puts_its_weights_back(tiny_reader_task: Callable[[Recipe], Task]) -> None:
    recipe = tiny_recipe(batch_tokens=2000, rate=5e-3)
    task = tiny_reader_task(recipe)
    before = [parameter.clone() for parameter in task.model.parameters()]
    first, last = overfit(task, recipe)
    assert last < 0.3 * first
    assert all(mine.equal(theirs) for mine, theirs in zip(task.model.parameters(), before, strict=True))


def test_sanity_stops_what_cannot_learn(tiny_reader_task: Callable[[Recipe], Task]) -> None:
    recipe = tiny_recipe(rate=0.0)
    with pytest.raises(TrainingError, match="could not be learned by heart"):
        overfit(tiny_reader_task(recipe), recipe)


def test_fast_attention_and_padding_give_what_transformers_gives(tiny_checkpoint: Callable[[Kind], Path]) -> None:
    import torch
    from transformers import AutoModel

    path = tiny_checkpoint("dual-encoder")
    fast = load_for_training("dual-encoder", path, dropout=0.1).eval()
    plain = AutoModel.from_pretrained(path, attn_implementation="eager", add_pooling_layer=False).eval()
    tokenizer = Tokenizer(path / "tokenizer.json")
    inputs = [tokenizer.single(tokenizer.encode(text).ids, max_tokens=64) for text in ("the sea", "the town " * 9)]
    with torch.inference_mode():
        together = outputs_of(fast, inputs).last_hidden_state
        for row, item in enumerate(inputs):
            ids = torch.from_numpy(item.ids[None])
            alone = plain(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
            assert torch.allclose(together[row, : item.ids.size], alone[0], atol=1e-5)


def test_byte_dropout_drops_its_share_keeps_the_mean_and_repeats_with_its_seed() -> None:
    import torch

    layer = ByteDropout(0.1).train()
    ones = torch.ones(200, 501)
    layer.seed(3)
    dropped = layer(ones)
    assert abs(float((dropped == 0).float().mean()) - 26 / 256) < 0.01
    assert abs(float(dropped.mean()) - 1) < 0.01
    layer.seed(3)
    assert layer(ones).equal(dropped)
    assert layer.eval()(ones).equal(ones)


@pytest.mark.parametrize("quantize", [False, True])
def test_a_model_folder_gives_its_weights_back(
    tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path], quantize: bool
) -> None:
    import torch
    from transformers import AutoModelForQuestionAnswering

    checkpoint = tmp_path / "checkpoint"
    original = AutoModelForQuestionAnswering.from_pretrained(tiny_checkpoint("reader"))
    for parameter in original.parameters():  # equal ones, as new biases are, would be stored once
        torch.nn.init.normal_(parameter, std=0.1)
    original.save_pretrained(checkpoint)
    shutil.copy(tiny_checkpoint("reader") / "tokenizer.json", checkpoint)
    settings = load_start("reader", str(checkpoint), tiny_recipe(), Lengths(64, 16, 8)).folder("reader").settings
    export(open_checkpoint(checkpoint, "reader"), tmp_path / "folder", settings, quantizes=quantize)
    found = onnx_weights(tmp_path / "folder" / "model.onnx")
    for name, value in original.state_dict().items():
        if "position_ids" not in name:
            assert found[name].shape == value.shape, name
            assert (found[name] - value).abs().max() <= (value.abs().max() / 64 if quantize else 1e-7)


def test_an_init_that_names_nothing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match="neither 'all-minilm-l6-v2', a transformers folder, a run, nor a model folder"
    ):
        load_start("reader", str(tmp_path / "nothing"), tiny_recipe(), LENGTHS)


@given(st.lists(st.integers(1, 400), max_size=60), st.integers(50, 800), st.integers(0, 5))
def test_every_example_is_in_one_batch_within_the_budget(lengths: list[int], budget: int, seed: int) -> None:
    sizes = np.array(lengths, np.int64)
    batches = token_budget_batches(sizes, batch_tokens=budget, seed=seed)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(batch.size == 1 or sizes[batch].max() * batch.size <= budget for batch in batches)


def test_pad_fills_with_zeros_and_batches_are_multiples_of_16_wide() -> None:
    items = [ModelInput(np.arange(1, n), np.zeros(n - 1, np.int64)) for n in (2, 17, 18)]
    assert [padded_width([items[0], item]) for item in items] == [16, 16, 32]
    rows = pad([np.arange(1, 18), np.array([4])], 32)
    assert rows.shape == (2, 32)
    assert rows[0].tolist() == [*range(1, 18)] + [0] * 15
    assert rows[1].tolist() == [4] + [0] * 31


def test_targets_are_the_answers_own_tokens(tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]) -> None:
    tokenizer = Tokenizer(tiny_checkpoint("reader") / "tokenizer.json")
    question = LabelledQuestion("q", "t", "the keeper was in the tower", "who was it", ((22, "tower"),))
    [example] = span_examples([question], tokenizer, null_windows=1, seed=1)
    assert tokenizer.decode(example.input.ids[example.start : example.end + 1].tolist()) == "tower"


def test_moved_questions_never_find_their_answer(tmp_path: Path) -> None:
    questions = read_questions(write_questions(tmp_path / "train.jsonl"))
    moved = moved_questions(questions, n_questions=4, seed=1)
    answers = {question.query: question.answers[0][1] for question in questions}
    assert len(moved) == 4
    assert all(not question.answers and answers[question.query] not in question.passage for question in moved)


def test_edited_questions_differ_in_what_their_passage_lacks() -> None:
    def question(number: int, title: str, query: str) -> LabelledQuestion:
        return LabelledQuestion(f"q{number}", title, "Ada met Bob in 1815 at the first fair", query, ((0, "Ada"),))

    sources = [
        question(1, "a", "who met Bob"),
        question(2, "a", "who met Carol"),
        question(3, "b", "who was it in 1815"),
        question(4, "b", "who was it in 1999"),
        question(5, "c", "who came to the first fair"),
        question(6, "d", "who was there"),
    ]
    edited = {each.question_id: each.query for each in edited_questions(sources, n_questions=6, seed=1)}
    assert edited["q1-edited"] == "who met Carol"
    assert "q2-edited" not in edited  # the passage has Bob, so "who met Bob" would be answered
    assert edited["q3-edited"] == "who was it in 1999"
    assert edited["q5-edited"] == "who came to the last fair"
    assert edited["q6-edited"] == "who was not there"


def test_group_negatives_hold_no_answer(tmp_path: Path, tiny_miner: Miner) -> None:
    questions = read_questions(write_questions(tmp_path / "train.jsonl"))
    groups = groups_from_questions(questions, tiny_miner, Wanted(2, 1), n_groups=6)
    assert groups
    for group in groups:
        town = group.positive.split()[0]
        assert len(set(group.negatives)) == 2
        assert all(town not in negative for negative in group.negatives)


def test_mined_negatives_stay_below_the_margin(tiny_miner: Miner) -> None:
    passages = ["the town of the sea", "the town by the sea", "a lamp was missing", "the keeper of the map"]
    query, positive = "the town of the sea", passages[0]
    cosines = dict(zip(passages, tiny_miner.cosines([query] * 4, passages), strict=True))
    others = sorted(passages[1:], key=lambda text: -cosines[text])
    margin = float(cosines[others[0]] + cosines[others[1]]) / 2 / float(cosines[positive])

    def mine(margin: float, n_negatives: int) -> tuple[str, ...]:
        [found] = tiny_miner.hard_negatives(
            [query], [positive], passages, Wanted(n_negatives, 1, margin), is_right=lambda n, t: False
        )
        return found

    assert set(mine(2.0, 3)) == set(others)
    assert set(mine(margin, 2)) == set(others[1:])
    assert mine(margin, 3) == ()


def write_beir(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{i}", "title": "", "text": f"the {town}"}) + "\n" for i, town in enumerate(TOWNS))
    )
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "query"}) + "\n")
    (folder / "qrels").mkdir()
    rows = "".join(f"q\td{i}\t{int(i == 2)}\n" for i in range(4))
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)


def test_beir_groups_follow_the_judgements_and_bad_folders_are_named(tmp_path: Path, tiny_miner: Miner) -> None:
    with pytest.raises(DataError, match=r"corpus\.jsonl is missing"):
        read_beir(tmp_path, "train")
    write_beir(tmp_path)
    [group] = groups_from_beir(Source(tmp_path, "train", 5), tiny_miner, Wanted(3, 1))
    assert (group.query, group.positive) == ("query", "the tower")
    assert set(group.negatives) == {"the lima", "the porto", "the harbour"}


def test_judgements_that_cannot_be_used_are_counted(tmp_path: Path, tiny_miner: Miner) -> None:
    write_beir(tmp_path)
    rows = (tmp_path / "qrels" / "train.tsv").read_text()
    (tmp_path / "qrels" / "train.tsv").write_text(f"{rows}q\tgone\t1\nnobody\td1\t1\nblank\td1\t1\n")
    with (tmp_path / "queries.jsonl").open("a") as file:
        file.write('{"_id": "blank", "text": " "}\n')
    told: list[str] = []
    groups = groups_from_beir(Source(tmp_path, "train", None), tiny_miner, Wanted(3, 1), tell=told.append)
    assert [group.query for group in groups] == ["query"]
    [sentence] = told
    assert f"{tmp_path}: 3 of 7 judgements are left out" in sentence


def test_a_document_that_repeats_a_relevant_one_is_no_negative(tmp_path: Path, tiny_miner: Miner) -> None:
    write_beir(tmp_path)
    with (tmp_path / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "twin", "title": "", "text": "the tower"}\n')
    with (tmp_path / "qrels" / "train.tsv").open("a") as file:
        file.write("q\ttwin\t0\n")
    [group] = groups_from_beir(Source(tmp_path, "train", None), tiny_miner, Wanted(3, 1))
    assert set(group.negatives) == {"the lima", "the porto", "the harbour"}


@pytest.mark.parametrize("passage", ["the of", "a", "?"])
def test_passages_without_a_word_that_bm25_counts_are_found_by_nothing(passage: str, tiny_miner: Miner) -> None:
    assert bm25_hits([passage, "in on"], ["the", "lima"], depth=5) == [[], []]
    assert groups_from_triples([Triple("lima", passage, ())], tiny_miner, Wanted(1, 1)) == []


def test_triples_keep_their_own_negatives_and_those_with_too_few_are_left_out(tiny_miner: Miner) -> None:
    triples = [Triple("q", "the town", ("a lamp", "a map")), Triple("q", "the sea", ("a lamp", "a map", "a file"))]
    assert groups_from_triples(triples, tiny_miner, Wanted(3, 1)) == [Group("q", "the sea", triples[1].negatives)]


def test_headings_ask_for_their_sections(tmp_path: Path) -> None:
    words = "word " * 20
    (tmp_path / "a.md").write_text(
        f"---\ntitle: Range queries\n---\n# Range queries\n{words}\n"
        f"## Date *fields*\n[see](x.md) {words}\n## Short\nno\n"
    )
    pairs = pairs_from_documents(tmp_path)
    assert [pair.query for pair in pairs] == ["Range queries", "Range queries Date fields"]
    assert pairs[1].positive.startswith("see word")
    with pytest.raises(DataError, match="no Markdown file"):
        pairs_from_documents(tmp_path / "nothing")
