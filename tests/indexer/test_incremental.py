"""Builds that take over what is there: equal to full ones, whatever was changed, and however often they were killed."""

import json
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
from indexer.ann import DenseKind, DenseRecord, DenseSettings, DenseWish
from indexer.build import BuildReport, build_snapshot
from indexer.chunking import ChunkingSettings
from indexer.documents import Document
from indexer.errors import BuildError
from indexer.manifest import MANIFEST_FILE, EncoderRecord, Manifest, read_manifest
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
    third = build([*documents, document(20)], tmp_path / "docs", models)
    assert (third.n_unchanged_documents, third.n_embedded_passages) == (20, third.n_passages - first.n_passages)
    assert contents(third.path) == contents(build([*documents, document(20)], tmp_path / "full", models).path)


def test_what_says_nothing_new_is_not_published_and_what_there_is_to_go_back_to_stays(
    tmp_path: Path, models: IndexModels
) -> None:
    def refuse(folder: Path) -> dict[str, float]:
        raise AssertionError("nothing is to be accepted")

    documents = [document(i) for i in range(3)]
    before = build([document(7)], tmp_path / "docs", models)
    first = build(documents, tmp_path / "docs", models)
    assert (first.is_unchanged, first.notices) == (False, [])
    for given_documents, change in (
        (documents, None),
        ([*reversed(documents)], None),
        ([], Change(frozenset(["nosuch"]))),
        ([documents[1]], Change()),
    ):
        again = build_snapshot(
            given_documents, index_path=tmp_path / "docs", models=models, run=BuildRun(change, accept=refuse)
        )
        assert (again.is_unchanged, again.snapshot_id, again.path) == (True, first.snapshot_id, first.path)
        assert (again.n_documents, again.n_bytes, again.dense) == (first.n_documents, first.n_bytes, first.dense)
    assert current_snapshot(tmp_path / "docs") == first.path
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["current", "history", "lock", "snapshots"]
    assert {path.name for path in (tmp_path / "docs" / "snapshots").iterdir()} == {
        before.snapshot_id,
        first.snapshot_id,
    }


def test_another_recipe_is_something_new_although_no_file_differs(tmp_path: Path, models: IndexModels) -> None:
    """Texts of numbers have the same terms in every language, and few passages a flat index of any recall."""
    documents = [Document("a", "17 4")]
    first = contents(build(documents, tmp_path / "docs", models).path)
    for recipe in (BuildSettings(language="german"), BuildSettings(dense=DenseSettings(recall=0.5))):
        again = build_snapshot(documents, index_path=tmp_path / "docs", models=models, settings=recipe)
        assert contents(again.path) == first
        assert not again.is_unchanged


RECIPE = BuildSettings(
    language="german",
    chunking=ChunkingSettings(max_tokens=60, overlap_tokens=10),
    k1=0.9,
    b=0.4,
    dense=DenseSettings(kind="hnsw", recall=0.8, memory_bytes=10**9),
)


def recipe_of(report: BuildReport) -> dict[str, object]:
    manifest = read_manifest(report.path)
    made = {"language": report.language, "chunking": manifest.chunking, "wish": manifest.wish}
    return made | {"analyzer": manifest.bm25.analyzer, "k1": manifest.bm25.k1, "b": manifest.bm25.b}


@pytest.mark.parametrize("is_old", [False, True])
def test_a_build_that_keeps_documents_keeps_their_recipe_but_for_what_it_is_told(
    tmp_path: Path, models: IndexModels, is_old: bool
) -> None:
    """Old: the manifest does not say what was wished; a flat index of few passages then is what nobody asked for."""

    def build_with(document_: Document, settings: BuildSettings, change: Change | None = None) -> BuildReport:
        run = BuildRun(change, notice=said.append)
        return build_snapshot([document_], index_path=tmp_path / "docs", models=models, settings=settings, run=run)

    said: list[str] = []
    first = build_with(document(1), RECIPE)
    if is_old:
        path = first.path / MANIFEST_FILE
        content = json.loads(path.read_bytes())
        assert content.pop("dense_wish") == {"kind": "hnsw", "recall": 0.8, "memory_bytes": 10**9}
        path.write_text(json.dumps(content))
    expected = recipe_of(first)
    assert expected["wish"] == (DenseWish() if is_old else DenseWish(kind="hnsw", recall=0.8, memory_bytes=10**9))
    second = build_with(document(2), BuildSettings(keep=5, dense=DenseSettings(device="cpu")), Change())
    assert recipe_of(second) == expected
    assert (second.n_documents, second.n_unchanged_documents) == (2, 1)
    third = build_with(document(3), BuildSettings(b=0.5, dense=DenseSettings(recall=0.7)), Change(frozenset(["d01"])))
    assert recipe_of(third) == expected | {
        "b": 0.5,
        "wish": DenseWish(recall=0.7) if is_old else DenseWish(kind="hnsw", recall=0.7, memory_bytes=10**9),
    }
    anew = build_with(document(3), BuildSettings(), None)
    assert recipe_of(anew)["language"] == "english"


def test_a_wish_that_is_not_written_down_is_what_gives_the_index_that_is_there() -> None:
    def wish(kind: DenseKind, n_passages: int, recall: float | None = None) -> DenseWish:
        record = DenseRecord(kind=kind, wanted_recall=recall)
        encoder = EncoderRecord(name="e", fingerprint="f", dimension=384)
        return Manifest.model_construct(n_passages=n_passages, encoder=encoder, dense=record).wish

    assert wish("flat", 19_999) == wish("ivf-sq8", 20_000, 0.95) == DenseWish()
    assert wish("flat", 20_000) == DenseWish(kind="flat")
    assert wish("ivf-sq8", 19_999, 0.9) == DenseWish(kind="ivf-sq8", recall=0.9)
    assert wish("hnsw", 30_000, 0.8) == DenseWish(kind="hnsw", recall=0.8)


@pytest.mark.parametrize("change", [None, Change()])
def test_what_is_otherwise_than_before_is_told(tmp_path: Path, models: IndexModels, change: Change | None) -> None:
    def build_with(recipe: BuildSettings, change: Change | None) -> list[str]:
        said: list[str] = []
        run = BuildRun(change, notice=said.append)
        report = build_snapshot([document(1)], index_path=tmp_path / "docs", models=models, settings=recipe, run=run)
        assert report.notices == said
        return said

    [few] = build_with(RECIPE, None)
    assert few.startswith("A dense index of the kind hnsw needs 5,000 passages; there are ")
    assert build_with(RECIPE, change) == [few]
    spoken = BuildSettings(
        language="french", chunking=ChunkingSettings(), k1=1.2, b=0.75, dense=DenseSettings(kind="auto", recall=0.95)
    )
    expected = [
        "The language is french now, german before: all passages are analyzed anew.",
        "Passages are cut otherwise than before: all are made anew.",
        "BM25's k1 and b are 1.2 and 0.75 now, 0.9 and 0.4 before.",
        "The wanted dense index is auto now, hnsw before.",
        "The wanted recall of a dense index is 0.95 now, 0.8 before.",
    ]
    bound = [] if change else ["The memory for a dense index in bytes is not bounded now, 1000000000 before."]
    assert build_with(spoken, change) == expected + bound
    assert build_with(spoken, change) == []


def test_other_models_are_told(tmp_path: Path, models: IndexModels) -> None:
    build([document(1)], tmp_path / "docs", models)
    encoder = CountingEncoder(models.passage_tokenizer)
    encoder.fingerprint = "f" * 64
    others = IndexModels(encoder, models.passage_tokenizer, "1" * 64, encoder_name="other")
    report = build([], tmp_path / "docs", others, Change())
    assert report.notices == [
        "The dual encoder is other (ffffffffffff) now, dual encoder (eeeeeeeeeeee) before: all passages are embedded "
        "anew.",
        "The cross-encoder's tokenizer is another one than before: all passages are tokenized anew.",
    ]
    assert report.n_embedded_passages == report.n_passages


def test_an_analyzer_that_is_not_known_any_more_is_kept_by_nobody(tmp_path: Path, models: IndexModels) -> None:
    first = build([document(1)], tmp_path / "docs", models)
    path = first.path / MANIFEST_FILE
    path.write_text(path.read_text().replace("english/2", "english/1"))
    with pytest.raises(
        BuildError, match=r"with the analyzer '.*english/1', which this Tercet does not have: say the lan"
    ):
        build([document(2)], tmp_path / "docs", models, Change())
    english = BuildSettings(language="english")
    report = build_snapshot(
        [document(2)], index_path=tmp_path / "docs", models=models, settings=english, run=BuildRun(Change())
    )
    assert (report.n_documents, report.n_unchanged_documents) == (2, 0)


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
    [notice] = second.notices
    assert notice.startswith("Nothing is taken over from the snapshot before: ")
    assert not second.is_unchanged


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


def test_vectors_that_the_disk_lost_are_made_anew_and_told(tmp_path: Path, models: IndexModels) -> None:
    documents = [document(i) for i in range(6)]

    def refuse(folder: Path) -> dict[str, float]:
        raise BuildError("not good enough")

    with pytest.raises(BuildError):
        build_snapshot(documents, index_path=tmp_path / "docs", models=models, run=BuildRun(accept=refuse))
    [vectors] = (tmp_path / "docs" / "pending").glob("*.vectors")
    content = vectors.read_bytes()
    vectors.write_bytes(bytes(3 * 4 * 32) + content[3 * 4 * 32 :])
    report = build(documents, tmp_path / "docs", models)
    assert report.n_embedded_passages == 3
    assert report.notices == ["Of the vectors that a killed build left, 3 are damaged and made anew."]
    assert contents(report.path) == contents(build(documents, tmp_path / "full", models).path)


N_KILLS = 50
N_KILLED_DOCUMENTS = 60


class SlowEncoder(CountingEncoder):
    """Gives a kill time to come between batches."""

    def encode_passages(self, passages: Any) -> Any:
        time.sleep(0.03)
        return super().encode_passages(passages)


def build_slowly(tokenizer_path: Path, index_path: Path) -> None:
    embedding._BATCH_CHARACTERS = 600
    tokenizer = Tokenizer(tokenizer_path)
    models = IndexModels(SlowEncoder(tokenizer), tokenizer, "0" * 64)
    build([document(i) for i in range(N_KILLED_DOCUMENTS)], index_path, models)


def pending_bytes(index_path: Path) -> int:
    return sum(path.stat().st_size for path in index_path.glob("pending/*.entries"))


def test_a_build_killed_fifty_times_ends_with_the_same_bytes(tmp_path: Path, word_tokenizer_path: Path) -> None:
    """Half of the runs are killed at a random moment before they make vectors, half soon after the first of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    generator = random.Random(0)
    shortest = 60.0  # seconds to new vectors
    for number in range(N_KILLS):
        n_bytes, started = pending_bytes(tmp_path / "docs"), time.monotonic()
        process = context.Process(target=build_slowly, args=(word_tokenizer_path, tmp_path / "docs"))
        process.start()
        if number % 2:
            time.sleep(generator.uniform(0, shortest))
        else:
            while process.is_alive() and pending_bytes(tmp_path / "docs") <= n_bytes:
                time.sleep(0.001)
            shortest = min(shortest, time.monotonic() - started)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    models = models_of(Tokenizer(word_tokenizer_path))
    documents = [document(i) for i in range(N_KILLED_DOCUMENTS)]
    report = build(documents, tmp_path / "docs", models)
    assert report.n_embedded_passages < report.n_passages
    assert report.notices == []
    assert contents(report.path) == contents(build(documents, tmp_path / "full", models).path)
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["current", "history", "lock", "snapshots"]
    assert np.load(report.path / "passage_keys.npy").size == report.n_passages
