"""Vectors found by what the encoder saw, and those of a build that was killed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.vectors import KnownVectors, PendingVectors, VectorSource, passage_keys

D = 3
TEXTS = st.lists(st.text(max_size=4), max_size=20)


def vectors_of(texts: list[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return a vector that says which text it belongs to."""
    return np.array(
        [[len(text), *(float(key) for key in passage_keys([text])["high"] % 997), 1] for text in texts], np.float32
    ).reshape(-1, D)


def source_of(texts: list[str]) -> VectorSource:
    keys = passage_keys(texts)
    keys["is_cut"] = [len(text) > 2 for text in texts]
    return VectorSource(keys, vectors_of(texts))


@given(TEXTS, TEXTS, TEXTS)
def test_what_a_source_has_is_found_and_nothing_else(one: list[str], other: list[str], asked: list[str]) -> None:
    keys, found = passage_keys(asked), np.full((len(asked), D), -1, np.float32)
    is_known = KnownVectors([source_of(one), source_of(other)]).find(keys, found)
    assert is_known.tolist() == [text in {*one, *other} for text in asked]
    assert np.array_equal(found[is_known], vectors_of(asked)[is_known])
    assert (found[~is_known] == -1).all()
    assert keys["is_cut"].tolist() == [
        int(len(text) > 2 and known) for text, known in zip(asked, is_known, strict=True)
    ]


def pending(folder: Path, fingerprint: str = "abc") -> PendingVectors:
    return PendingVectors(folder / "pending", encoder_fingerprint=fingerprint, dimension=D)


def test_what_was_appended_is_there_after_a_kill_and_goes_when_it_is_published(tmp_path: Path) -> None:
    with pending(tmp_path) as one:
        one.append(passage_keys(["a", "b"]), vectors_of(["a", "b"]))
    with pending(tmp_path) as again:
        assert np.array_equal(again.source().keys, passage_keys(["a", "b"]))
        again.append(passage_keys(["c"]), vectors_of(["c"]))
        assert np.array_equal(again.source().vectors, vectors_of(["a", "b", "c"]))
        again.remove()
    assert not (tmp_path / "pending").exists()


@pytest.mark.parametrize(("end", "n_bytes"), [("entries", 5), ("vectors", 5), ("entries", 24), ("vectors", 12)])
def test_a_torn_end_is_cut_off(tmp_path: Path, end: str, n_bytes: int) -> None:
    with pending(tmp_path) as one:
        one.append(passage_keys(["a", "b"]), vectors_of(["a", "b"]))
    path = tmp_path / "pending" / f"abc.{end}"
    path.write_bytes(path.read_bytes()[:-n_bytes])
    with pending(tmp_path) as again:
        left = ["a"] if n_bytes <= 21 else []
        assert np.array_equal(again.source().keys, passage_keys(left))
        again.append(passage_keys(["c"]), vectors_of(["c"]))
        assert np.array_equal(again.source().vectors, vectors_of([*left, "c"]))


def test_another_encoder_begins_anew(tmp_path: Path) -> None:
    with pending(tmp_path) as one:
        one.append(passage_keys(["a"]), vectors_of(["a"]))
    with pending(tmp_path, "other") as other:
        assert other.source().keys.size == 0
    assert not (tmp_path / "pending" / "abc.entries").exists()


@pytest.mark.parametrize(
    "damage", ["a bit of a vector", "a bit of a key", "zeros", "zeros in both", "two rows swapped"]
)
def test_what_the_disk_changed_is_left_out_and_counted(tmp_path: Path, damage: str) -> None:
    texts = ["a", "b", "c", "d"]
    with pending(tmp_path) as one:
        one.append(passage_keys(texts), vectors_of(texts))
    entries, vectors = (tmp_path / "pending" / f"abc.{end}" for end in ("entries", "vectors"))
    changed, rows = bytearray(entries.read_bytes()), bytearray(vectors.read_bytes())
    if damage == "a bit of a vector":
        rows[4 * D] ^= 1
    elif damage == "a bit of a key":
        changed[21] ^= 1
    elif damage.startswith("zeros"):
        rows[4 * D : 8 * D] = bytes(4 * D)
        changed[21:42] = bytes(21) if damage == "zeros in both" else changed[21:42]
    else:
        rows[4 * D : 12 * D] = rows[8 * D : 12 * D] + rows[4 * D : 8 * D]
    entries.write_bytes(changed)
    vectors.write_bytes(rows)
    good = ["a", "d"] if damage == "two rows swapped" else ["a", "c", "d"]
    with pending(tmp_path) as again:
        source = again.source()
        assert np.array_equal(source.keys, passage_keys(good))
        assert np.array_equal(source.vectors, vectors_of(good))
        assert again.n_damaged == len(texts) - len(good)


def test_what_a_tercet_without_checks_left_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "pending").mkdir()
    (tmp_path / "pending" / "abc.keys").write_bytes(passage_keys(["a"]).tobytes())
    (tmp_path / "pending" / "abc.vectors").write_bytes(vectors_of(["a"]).tobytes())
    with pending(tmp_path) as again:
        assert again.source().keys.size == 0
        again.append(passage_keys(["b"]), vectors_of(["b"]))
        assert np.array_equal(again.source().vectors, vectors_of(["b"]))


def test_a_folder_that_cannot_be_removed_is_no_fault_of_a_published_snapshot(tmp_path: Path) -> None:
    with pending(tmp_path) as one:
        one.append(passage_keys(["a"]), vectors_of(["a"]))
        (tmp_path / "pending" / ".nfs0001").touch()
        one.remove()
