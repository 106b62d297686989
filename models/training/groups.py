"""Make training groups for the cross-encoder: a query, one relevant passage, and several that are not.

The queries are of several kinds, so that the model does not learn one genre: questions with their paragraph, sentences
and half paragraphs with the rest of it, and whatever a BEIR folder or triples bring. Each half of the questions is
changed to what people type into a search box.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from models.training.beir import read_beir
from models.training.data import LabelledQuestion, Triple, passages_by_title
from models.training.mining import Miner, Wanted
from models.training.records import Source

# Questions of these sets need their passage to be understood ("What did he do?"); they are no queries.
NOT_SELF_CONTAINED_SETS = {"qamr_dev", "qamr_test", "fairytaleqa_train"}
# A negative of a labelled question is checked for the answer, so it may be nearer to the query than the positive is.
_CHECKED_MARGIN = 1.2
_MANY_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Group:
    """One training group; all groups of a run have equally many negatives."""

    query: str
    positive: str
    negatives: tuple[str, ...]


def self_contained(questions: Sequence[LabelledQuestion]) -> list[LabelledQuestion]:
    """Return the answerable questions that can be understood without their passage."""
    return [each for each in questions if each.answers and each.set_name not in NOT_SELF_CONTAINED_SETS]


def groups_from_questions(
    questions: Sequence[LabelledQuestion], miner: Miner, wanted: Wanted, *, n_groups: int
) -> list[Group]:
    """Return at most n_groups groups of a question, its passage, and mined negatives that hold no answer to it.

    The last negative is a paragraph of the same title where there is one. Half of the questions lose their question
    mark and capitals, and some all their stop words, as in a search box.
    """
    generator = random.Random(wanted.seed)
    eligible = self_contained(questions)
    chosen = generator.sample(eligible, min(n_groups, len(eligible)))
    siblings = passages_by_title(questions)
    mined = miner.hard_negatives(
        [each.query for each in chosen],
        [each.passage for each in chosen],
        list(dict.fromkeys(each.passage for each in questions)),
        replace(wanted, margin=_CHECKED_MARGIN),
        is_right=lambda number, text: chosen[number].has_answer_in(text),
    )
    groups = []
    for question, negatives in zip(chosen, mined, strict=True):
        own = [text for text in siblings[question.title] if text not in negatives and text != question.passage]
        fits = [text for text in own if not question.has_answer_in(text)]
        if negatives and fits:
            negatives = (*negatives[:-1], generator.choice(fits))
        if negatives:
            groups.append(Group(_as_typed(question.query, generator), question.passage, negatives))
    return groups


def groups_from_paragraphs(passages: Sequence[str], miner: Miner, wanted: Wanted, *, n_groups: int) -> list[Group]:
    """Return groups of a sentence or a half of a paragraph and the rest of it (Lee et al. 2019, inverse cloze task).

    They stand for queries that are statements, and long ones.
    """
    generator = random.Random(wanted.seed + 1)
    chosen = [text for text in generator.sample(passages, len(passages)) if text.count(". ") >= 3][:n_groups]
    queries, rests = [], []
    for number, passage in enumerate(chosen):
        sentences = passage.split(". ")
        if number % 2:
            half = len(sentences) // 2
            query, rest = sentences[:half], sentences[half:]
        else:
            taken = generator.randrange(len(sentences))
            query, rest = [sentences[taken]], sentences[:taken] + sentences[taken + 1 :]
        queries.append(". ".join(query))
        rests.append(". ".join(rest))
    mined = miner.hard_negatives(
        queries,
        rests,
        list(passages),
        replace(wanted, margin=_CHECKED_MARGIN),
        is_right=lambda number, text: text == chosen[number],
    )
    return [Group(*parts) for parts in zip(queries, rests, mined, strict=True) if parts[2]]


def groups_from_beir(
    source: Source, miner: Miner, wanted: Wanted, *, tell: Callable[[str], None] = lambda sentence: None
) -> list[Group]:
    """Return groups of a judged query, one document judged relevant, and others; at most as many as the source says.

    Documents judged not relevant are its negatives; where they are too few, negatives are mined. tell learns how many
    judgements are left out, because their query or their document is not there.
    """
    dataset = read_beir(source.path, source.split)
    generator = random.Random(wanted.seed + 2)
    known = {query_id: text for query_id, text in dataset.queries.items() if text.strip()}
    judged = [
        (known[query_id], [each for each in judgements.items() if each[0] in dataset.documents])
        for query_id, judgements in dataset.judgements.items()
        if query_id in known
    ]
    n_judgements = sum(map(len, dataset.judgements.values()))
    n_lost = n_judgements - sum(len(grades) for _, grades in judged)
    if n_lost:
        tell(
            f"{source.path}: {n_lost:,} of {n_judgements:,} judgements are left out: their query has no text "
            "or their document is not there."
        )
    judged = [each for each in judged if any(grade > 0 for _, grade in each[1])]
    triples = []
    for query, grades in generator.sample(judged, len(judged))[: source.limit]:
        relevant = [dataset.documents[document] for document, grade in grades if grade > 0]
        others = [dataset.documents[document] for document, grade in grades if grade <= 0]
        others = [text for text in others if text not in relevant]  # two documents can hold the same
        generator.shuffle(others)
        triples.append((Triple(query, generator.choice(relevant), tuple(others[: wanted.n_negatives])), set(relevant)))
    return _completed(
        [triple for triple, _ in triples],
        miner,
        list(dict.fromkeys(dataset.documents.values())),
        wanted,
        is_right=lambda number, text: text in triples[number][1],
    )


def groups_from_triples(triples: Sequence[Triple], miner: Miner, wanted: Wanted) -> list[Group]:
    """Return one group a triple; where its negatives are too few, more are mined among all positives."""
    return _completed(
        triples,
        miner,
        list(dict.fromkeys(triple.positive for triple in triples)),
        wanted,
        is_right=lambda number, text: text == triples[number].positive,
    )


def _completed(
    triples: Sequence[Triple],
    miner: Miner,
    passages: Sequence[str],
    wanted: Wanted,
    is_right: Callable[[int, str], bool],
) -> list[Group]:
    """Return groups of n_negatives, what the triples lack being mined; a triple for which too few are found is left.

    Where few triples lack any, BM25 alone proposes: encoding a whole collection for them is not worth it.
    """
    lacking = [number for number, triple in enumerate(triples) if len(triple.negatives) < wanted.n_negatives]
    mined = miner.hard_negatives(
        [triples[number].query for number in lacking],
        [triples[number].positive for number in lacking],
        passages,
        replace(wanted, is_lexical=len(lacking) < _MANY_SHARE * len(triples)),
        is_right=lambda number, text: is_right(lacking[number], text),
    )
    extra = dict(zip(lacking, mined, strict=True))
    groups = []
    for number, triple in enumerate(triples):
        negatives = tuple(dict.fromkeys([*triple.negatives, *extra.get(number, ())]))[: wanted.n_negatives]
        if len(negatives) == wanted.n_negatives:
            groups.append(Group(triple.query, triple.positive, negatives))
    return groups


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
