"""What a training run is made of: files and folders in, groups to learn from and groups to measure on out."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from models.errors import DataError
from models.training.data import LabelledQuestion, holds_triples, read_questions, read_triples
from models.training.groups import (
    Group,
    groups_from_beir,
    groups_from_paragraphs,
    groups_from_questions,
    groups_from_triples,
    self_contained,
)
from models.training.mining import Miner, Wanted
from models.training.records import Source
from models.training.sections import pairs_from_documents

T = TypeVar("T")

DEV_NEGATIVES = 9
_HELD_OUT_SHARE = 0.05
_MOST_HELD_OUT = 1_000


@dataclass(frozen=True, slots=True)
class GroupSources:
    """Where groups come from: files of questions or triples, BEIR folders, and folders of Markdown.

    paragraphs is how many groups are made of the questions' paragraphs alone.
    """

    files: Sequence[Source]
    datasets: Sequence[Source]
    documents: Sequence[Source]
    paragraphs: int
    n_negatives: int


def groups_of_sources(
    sources: GroupSources, dev: GroupSources | None, miner: Miner, seed: int, *, tell: Callable[[str], None]
) -> tuple[list[Group], list[Group]]:
    """Return groups to learn from and groups to measure on: those of dev, or else a share that is held out.

    tell learns, in a sentence a source, what is left out.

    Raises:
        DataError: a file is malformed, or there is no group to learn from or none in dev.
    """
    groups = _all_groups(sources, miner, seed, tell)
    if not groups:
        raise DataError("the data gives no query with a relevant passage and enough that are not")
    if dev is None:
        return _split_by_query(groups, seed)
    held_out = _all_groups(dev, miner, seed, tell)
    if not held_out:
        raise DataError(f"the dev data gives no group of a relevant passage and {dev.n_negatives} that are not")
    return groups, held_out


def _split_by_query(groups: Sequence[Group], seed: int) -> tuple[list[Group], list[Group]]:
    queries = sorted({group.query for group in groups})
    held_out = set(random.Random(seed).sample(queries, min(_MOST_HELD_OUT, int(_HELD_OUT_SHARE * len(queries)))))
    return [each for each in groups if each.query not in held_out], [each for each in groups if each.query in held_out]


def _all_groups(sources: GroupSources, miner: Miner, seed: int, tell: Callable[[str], None]) -> list[Group]:
    wanted = Wanted(sources.n_negatives, seed)
    groups: list[Group] = []
    paragraphs: dict[str, None] = {}
    for source in sources.files:
        if holds_triples(source.path):
            triples = sample(read_triples(source.path), source.limit, seed)
            groups += groups_from_triples(triples, miner, wanted)
        else:
            questions = read_questions(source.path)
            paragraphs |= dict.fromkeys(question.passage for question in self_contained(questions))
            limit = len(questions) if source.limit is None else source.limit
            groups += groups_from_questions(questions, miner, wanted, n_groups=limit)
    groups += groups_from_paragraphs(list(paragraphs), miner, wanted, n_groups=sources.paragraphs)
    for source in sources.datasets:
        groups += groups_from_beir(source, miner, wanted, tell=tell)
    for source in sources.documents:
        pairs = sample(pairs_from_documents(source.path), source.limit, seed)
        groups += groups_from_triples(pairs, miner, wanted)
    return groups


def sample(items: Sequence[T], limit: int | None, seed: int) -> list[T]:
    """Return so many of the items at most, drawn at random, or all of them, in order, where limit is None."""
    return list(items) if limit is None else random.Random(seed).sample(items, min(limit, len(items)))


def split_by_title(
    questions: Sequence[LabelledQuestion], seed: int
) -> tuple[list[LabelledQuestion], list[LabelledQuestion]]:
    """Return questions to learn from and to measure on; no title is on both sides."""
    titles = sorted({question.title for question in questions})
    random.Random(seed).shuffle(titles)
    counts: dict[str, int] = dict.fromkeys(titles, 0)
    for question in questions:
        counts[question.title] += 1
    wanted = min(_MOST_HELD_OUT, int(_HELD_OUT_SHARE * len(questions)))
    held_out: set[str] = set()
    for title in titles:
        if wanted <= 0:
            break
        if counts[title] <= 2 * wanted:
            held_out.add(title)
            wanted -= counts[title]
    return [q for q in questions if q.title not in held_out], [q for q in questions if q.title in held_out]
