"""Builds that take over what is there: equal to full ones, whatever was changed, and however often they were killed."""

import multiprocessing
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer import embedding
from indexer.build import BuildReport, build_snapshot
from indexer.chunking import ChunkingSettings
from indexer.documents import Document
from indexer.errors import BuildError
from indexer.manifest import MANIFEST_FILE
from indexer.publish import current_snapshot
from indexer.recipe import BuildRun, BuildSettings, Change, IndexModels
from models.tokenization import Tokenizer
from tests.indexer.hashed_words import HashedWordEncoder

WORDS = ["fog", "harbour", "ferry", "ticket", "drum", "skin", "warning", "lifted"]


class CountingEncoder(HashedWordEncoder):
    """Counts what it is asked to encode."""

    n_encoded = 0

    def encode_passages(self, passages: Any) -> Any:
        self.n_encoded += len(passages)
        return super().encode_passages(passages)


def models_of(tokenizer: Tokenizer) -> IndexModels:
    return IndexModels(CountingEncoder(tokenizer), tokenizer, "0" * 64)


def document(number: int, *, n_sentences: int = 40, seed: int = 0) -> Document:
    generator = random.Random(1000 * seed + number)
    text = " ".join(" ".join(generator.choices(WORDS, k=6)) + "." for _ in range(n_sentences))
    return Document(f"d{number:02}", text, f"Title {number}", metadata={"number": number})


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a snapshot but the manifest, which holds its time and id."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_FILE]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def encoded_by(models: IndexModels) -> int:
    assert isinstance(models.dual_encoder, CountingEncoder)
    return models.dual_encoder.n_encoded


@pytest.fixture
def models(word_tokenizer: Tokenizer) -> IndexModels:
    return models_of(word_tokenizer)


def build(documents: list[Document], path: Path, models: IndexModels, change: Change | None = None) -> BuildReport:
    return build_snapshot(documents, index_path=path, models=models, run=BuildRun(change))


def test_an_unchanged_index_is_copied_and_nothing_is_embedded(tmp_path: Path, models: IndexModels) -> None:
    documents = [document(i) for i in range(20)]
    first = build(documents, tmp_path / "docs", models)
    assert (first.n_unchanged_documents, first.n_embedded_passages) == (0, first.n_passages)
    n_encoded = encoded_by(models)
    second = build(documents, tmp_path / "docs", models)
    assert (second.n_unchanged_documents, second.n_embedded_passages) == (20, 0)
    assert encoded_by(models) == n_encoded
    assert contents(second.path) == contents(first.path)


def test_only_the_passages_that_changed_are_embedded(tmp_path: Path, models: IndexModels) -> None:
    documents = [document(i) for i in range(20)]
    build(documents, tmp_path / "docs", models)
    longer = Document("d03", documents[3].text + "\n\nA new paragraph of the harbour.", documents[3].title)
    renamed = Document("other", documents[4].text, documents[4].title)
    changed = [*documents[:3], longer, *documents[5:], renamed]
    report = build(changed, tmp_path / "docs", models)
    assert report.n_unchanged_documents == 18
    assert 1 <= report.n_embedded_passages <= 2
    assert contents(report.path) == contents(build(changed, tmp_path / "full", models).path)


def test_other_metadata_makes_no_work_but_is_written(tmp_path: Path, models: IndexModels) -> None:
    build([document(1)], tmp_path / "docs", models)
    moved = Document("d01", document(1).text, "Title 1", "https://new.example", {"number": 7})
    report = build([moved], tmp_path / "docs", models)
    assert (report.n_unchanged_documents, report.n_embedded_passages) == (1, 0)
    assert contents(report.path) == contents(build([moved], tmp_path / "full", models).path)


def test_other_settings_make_all_anew_and_equal_texts_keep_their_vectors(tmp_path: Path, models: IndexModels) -> None:
    documents = [document(i) for i in range(5)]
    build(documents, tmp_path / "docs", models)
    german = BuildSettings(language="german")
    report = build_snapshot(documents, index_path=tmp_path / "docs", models=models, settings=german)
    assert (report.n_unchanged_documents, report.n_embedded_passages) == (0, 0)
    small = BuildSettings(chunking=ChunkingSettings(max_tokens=60, overlap_tokens=10))
    report = build_snapshot(documents, index_path=tmp_path / "docs", models=models, settings=small)
    assert report.n_unchanged_documents == 0
    assert report.n_embedded_passages > 0


def test_nothing_is_taken_from_a_damaged_snapshot(tmp_path: Path, models: IndexModels) -> None:
    first = build([document(1)], tmp_path / "docs", models)
    path = first.path / "tokens.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(BuildError, match=r"cannot be kept: .*tokens.bin was altered.*; index all of them again"):
        build([document(2)], tmp_path / "docs", models, Change())
    second = build([document(1)], tmp_path / "docs", models)
    assert (second.n_unchanged_documents, second.n_embedded_passages) == (0, second.n_passages)


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "delete", "shrink", "replace all"]),
        st.lists(st.integers(0, 7), max_size=4),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(EDITS)
def test_any_sequence_of_edits_gives_what_a_full_build_gives(
    tmp_path_factory: pytest.TempPathFactory, word_tokenizer: Tokenizer, edits: list[tuple[str, list[int], int]]
) -> None:
    folder, models = tmp_path_factory.mktemp("edits"), models_of(word_tokenizer)
    there = {i: document(i, n_sentences=12) for i in range(4)}
    build(list(there.values()), folder / "docs", models)
    for kind, numbers, seed in edits:
        n_sentences = 3 if kind == "shrink" else 12
        given_documents = [document(i, n_sentences=n_sentences, seed=seed) for i in numbers]
        change: Change | None = Change()
        if kind == "delete":
            given_documents, change = [], Change(frozenset(f"d{i:02}" for i in numbers))
            there = {i: each for i, each in there.items() if i not in numbers}
        elif kind == "replace all":
            change, there = None, dict(zip(numbers, given_documents, strict=True))
        else:
            there |= dict(zip(numbers, given_documents, strict=True))
        report = build(given_documents, folder / "docs", models, change)
    full = build(list(there.values()), folder / "full", models_of(word_tokenizer))
    assert contents(report.path) == contents(full.path)


def test_a_change_without_an_index_begins_one(tmp_path: Path, models: IndexModels) -> None:
    assert build([document(1)], tmp_path / "docs", models, Change(frozenset(["d07"]))).n_documents == 1


def test_a_build_that_does_not_fit_on_the_disk_does_not_begin(
    tmp_path: Path, models: IndexModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(BuildError, match=r"needs [\d,]+ bytes for the vectors of .* passages; .* has 1,000 free"):
        build([document(i) for i in range(3)], tmp_path / "docs", models)
    assert encoded_by(models) == 0


def test_a_refused_snapshot_is_not_published_and_its_vectors_stay(tmp_path: Path, models: IndexModels) -> None:
    first = build([document(1)], tmp_path / "docs", models)

    def refuse(folder: Path) -> dict[str, float]:
        assert (folder / MANIFEST_FILE).is_file()
        raise BuildError("not good enough")

    with pytest.raises(BuildError, match="not good enough"):
        build_snapshot([document(2)], index_path=tmp_path / "docs", models=models, run=BuildRun(accept=refuse))
    assert current_snapshot(tmp_path / "docs") == first.path
    assert build([document(2)], tmp_path / "docs", models).n_embedded_passages == 0


N_KILLS = 50
N_KILLED_DOCUMENTS = 60


class SlowEncoder(CountingEncoder):
    """Gives a kill time to come between batches."""

    def encode_passages(self, passages: Any) -> Any:
        time.sleep(0.01)
        return super().encode_passages(passages)


def build_slowly(tokenizer_path: Path, index_path: Path) -> None:
    embedding._BATCH_CHARACTERS = 600
    tokenizer = Tokenizer(tokenizer_path)
    models = IndexModels(SlowEncoder(tokenizer), tokenizer, "0" * 64)
    build([document(i) for i in range(N_KILLED_DOCUMENTS)], index_path, models)


def test_a_build_killed_fifty_times_ends_with_the_same_bytes(tmp_path: Path, word_tokenizer_path: Path) -> None:
    """Killed at random moments from its beginning on, each run goes a little further than the ones before."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    generator = random.Random(0)
    for number in range(N_KILLS):
        process = context.Process(target=build_slowly, args=(word_tokenizer_path, tmp_path / "docs"))
        process.start()
        time.sleep(generator.uniform(0, 0.01 * number))
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    models = models_of(Tokenizer(word_tokenizer_path))
    documents = [document(i) for i in range(N_KILLED_DOCUMENTS)]
    report = build(documents, tmp_path / "docs", models)
    assert report.n_embedded_passages < report.n_passages
    assert contents(report.path) == contents(build(documents, tmp_path / "full", models).path)
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["current", "history", "lock", "snapshots"]
    assert np.load(report.path / "passage_keys.npy").size == report.n_passages
