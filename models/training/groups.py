"""Make training groups for the cross-encoder: a query, one relevant passage, N_NEGATIVES that are not.

Hard negatives are BM25's best passages that hold none of the answers, and sibling paragraphs of the same title: both
look right, and the check on the answer keeps false negatives rare.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import bm25s
import Stemmer

from models.training.data import LabelledQuestion, passages_by_title, read_beir

N_NEGATIVES = 3
_BM25_DEPTH = 20
# Questions of these sets point at one paragraph; those of the others ("What did he do?") need its context.
SELF_CONTAINED_SETS = {"squad11_train44", "squad11_train_par", "squadshifts_new_wiki", "qed_train"}


@dataclass(frozen=True, slots=True)
class Group:
    """One training group; negatives has N_NEGATIVES passages."""

    query: str
    positive: str
    negatives: tuple[str, ...]


def groups_from_questions(questions: Sequence[LabelledQuestion], *, n_groups: int, seed: int) -> list[Group]:
    """Return at most n_groups groups of a question, its passage, and hard negatives that hold no answer to it.

    Half of the questions lose their question mark and capitals, and some all their stop words, as in a search box.
    """
    siblings = passages_by_title(questions)
    passages = list({question.passage: None for question in questions})
    eligible = [q for q in questions if q.answers and q.set_name in SELF_CONTAINED_SETS]
    generator = random.Random(seed)
    chosen = generator.sample(eligible, min(n_groups, len(eligible)))
    groups = []
    for question, hits in zip(chosen, _bm25_hits(passages, [q.query for q in chosen]), strict=True):
        fits = {
            text: None
            for text in [*generator.sample(hits, len(hits)), *siblings[question.title][:8]]
            if text != question.passage and not question.has_answer_in(text)
        }
        candidates = list(fits)
        if len(candidates) >= N_NEGATIVES:
            negatives = (*candidates[: N_NEGATIVES - 1], candidates[-1])
            groups.append(Group(_as_typed(question.query, generator), question.passage, negatives))
    return groups


def groups_from_sentences(questions: Sequence[LabelledQuestion], *, n_groups: int, seed: int) -> list[Group]:
    """Return groups of a sentence and the rest of its paragraph, against other paragraphs near it in BM25."""
    passages = list({q.passage: None for q in questions if q.set_name in SELF_CONTAINED_SETS})
    generator = random.Random(seed + 1)
    chosen = [passage for passage in generator.sample(passages, len(passages)) if passage.count(". ") >= 3][:n_groups]
    queries, rests = [], []
    for passage in chosen:
        sentences = passage.split(". ")
        taken = generator.randrange(len(sentences))
        queries.append(sentences[taken])
        rests.append(". ".join(sentences[:taken] + sentences[taken + 1 :]))
    hits = _bm25_hits(passages, queries)
    return [
        Group(query, rest, tuple(others[:N_NEGATIVES]))
        for query, rest, found, passage in zip(queries, rests, hits, chosen, strict=True)
        if len(others := [text for text in found if text != passage]) >= N_NEGATIVES
    ]


def groups_from_beir(folder: Path, split: str, *, n_groups: int, seed: int) -> list[Group]:
    """Return groups of a labelled query, one document judged relevant, and documents judged not relevant."""
    dataset = read_beir(folder, split)
    generator = random.Random(seed + 2)
    groups = []
    for query_id, judgements in dataset.judgements.items():
        relevant = [document for document, grade in judgements.items() if grade > 0]
        others = [document for document, grade in judgements.items() if grade <= 0]
        if relevant and len(others) >= N_NEGATIVES:
            negatives = generator.sample(others, N_NEGATIVES)
            positive = generator.choice(relevant)
            texts = [dataset.documents[document] for document in (positive, *negatives)]
            groups.append(Group(dataset.queries[query_id], texts[0], tuple(texts[1:])))
    return generator.sample(groups, min(n_groups, len(groups)))


def _bm25_hits(passages: Sequence[str], queries: Sequence[str]) -> list[list[str]]:
    """Return each query's _BM25_DEPTH best passages, best first."""
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25()
    index.index(
        bm25s.tokenize(list(passages), stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False
    )
    tokens = bm25s.tokenize(list(queries), stopwords="en", stemmer=stemmer, show_progress=False)
    rows, _ = index.retrieve(tokens, k=min(_BM25_DEPTH, len(passages)), show_progress=False)
    return [[passages[row] for row in hits] for hits in rows]


_STOP_WORDS = frozenset(
    "a an and are as at be by did do does for from how in is it of on or the to was were what which who with".split()
)


def _as_typed(query: str, generator: random.Random) -> str:
    """Return the query as people type it: unchanged, in lower case without its mark, or as bare keywords."""
    draw = generator.random()
    if draw < 0.5:
        return query
    plain = query.rstrip("?! .").lower()
    if draw < 0.8:
        return plain
    return " ".join(word for word in plain.split() if word not in _STOP_WORDS) or plain
