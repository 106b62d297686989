"""Make unanswerable questions, which are rare in labelled data, out of answerable ones.

Two ways. *Moved*: the question is asked of a sibling paragraph, the nearest in BM25 that does not hold its answer
(Rajpurkar et al. 2018, section 3, show that questions moved at random are too easy). *Edited*: one word of the question
is changed so that its own paragraph no longer answers it; the kinds are those that section 4 of the same paper
finds in questions written by people: negation, antonym, and entity or number swap.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from models.training.data import LabelledQuestion, passages_by_title
from models.training.mining import bm25_hits

_OPPOSITES = """
    first last, largest smallest, biggest smallest, highest lowest, oldest youngest, most least, best worst,
    longest shortest, before after, above below, north south, northern southern, east west, eastern western,
    increase decrease, increased decreased, more less, early late, earlier later, began ended, begin end, start stop,
    started stopped, win lose, won lost, male female, public private, major minor, maximum minimum, inside outside,
    upper lower, rich poor, positive negative, legal illegal, allowed forbidden, accepted rejected, support oppose,
    supported opposed, created destroyed, founded dissolved, rise fall, internal external, hot cold, fast slow,
    easy hard, common rare, strong weak, old new, left right, similar different, always never, include exclude,
    included excluded, successful unsuccessful, possible impossible, able unable
"""
_ANTONYMS: dict[str, str] = {}
for _first, _second in (pair.split() for pair in _OPPOSITES.split(",")):
    _ANTONYMS[_first] = _second
    _ANTONYMS[_second] = _first
_SHARES = (3, 3, 3, 1)
_NEGATABLE = re.compile(r"\b(is|are|was|were|did|does|do|can|could|would|should|will|has|had)\b", re.IGNORECASE)
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*")
_NUMBER = re.compile(r"\b\d[\d,.]*\d\b|\b\d\b")


def moved_questions(questions: Sequence[LabelledQuestion], *, n_questions: int, seed: int) -> list[LabelledQuestion]:
    """Return at most n_questions answerable questions, each asked of a sibling passage without its answer.

    A sibling has the same title and holds none of the question's answer texts, in any case; of those that BM25 finds
    for the question the best is taken.
    """
    siblings = passages_by_title(questions)
    passages = list({question.passage: None for question in questions})
    sources = [question for question in questions if question.answers and len(siblings[question.title]) > 1]
    chosen = random.Random(seed).sample(sources, len(sources))[: 3 * n_questions]
    moved: list[LabelledQuestion] = []
    for question, hits in zip(chosen, bm25_hits(passages, [q.query for q in chosen], depth=20), strict=True):
        own = set(siblings[question.title]) - {question.passage}
        target = next((text for text in hits if text in own and not question.has_answer_in(text)), None)
        if target is not None and len(moved) < n_questions:
            moved.append(replace(question, question_id=f"{question.question_id}-moved", passage=target, answers=()))
    return moved


def edited_questions(questions: Sequence[LabelledQuestion], *, n_questions: int, seed: int) -> list[LabelledQuestion]:
    """Return at most n_questions answerable questions with one word changed, so that their passage answers no more.

    Swapped names, swapped numbers, antonyms and negations stand 3 : 3 : 3 : 1 as far as questions allow it.
    """
    generator = random.Random(seed)
    sources = [question for question in questions if question.answers]
    names, numbers = _by_title(sources, _NAME), _by_title(sources, _NUMBER)
    ways: list[Callable[[LabelledQuestion], str | None]] = [
        lambda question: _swapped(question, _NAME, names[question.title], generator),
        lambda question: _swapped(question, _NUMBER, numbers[question.title], generator),
        _antonym,
        _negated,
    ]
    edited: list[LabelledQuestion] = []
    shares = [0.0] * len(ways)
    for question in generator.sample(sources, len(sources)):
        if len(edited) == n_questions:
            break
        for way in sorted(range(len(ways)), key=lambda i: shares[i]):
            query = ways[way](question)
            if query is not None and query != question.query:
                shares[way] += 1 / _SHARES[way]
                edited.append(replace(question, question_id=f"{question.question_id}-edited", query=query, answers=()))
                break
    return edited


def _by_title(questions: Sequence[LabelledQuestion], pattern: re.Pattern[str]) -> Mapping[str, list[str]]:
    """Return what a pattern finds in the questions of each title."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for question in questions:
        found[question.title].update(dict.fromkeys(pattern.findall(question.query)))
    return defaultdict(list, {title: list(texts) for title, texts in found.items()})


def _swapped(
    question: LabelledQuestion, pattern: re.Pattern[str], others: Sequence[str], generator: random.Random
) -> str | None:
    """Return the query with one find of the pattern replaced by another one of its title that the passage lacks."""
    finds = list(pattern.finditer(question.query))
    folded = question.passage.casefold()
    fits = [text for text in others if text.casefold() not in folded and text not in question.query]
    if not finds or not fits:
        return None
    find = generator.choice(finds)
    return question.query[: find.start()] + generator.choice(fits) + question.query[find.end() :]


def _antonym(question: LabelledQuestion) -> str | None:
    words = question.query.split(" ")
    for at, word in enumerate(words):
        opposite = _ANTONYMS.get(word)
        if opposite is not None:
            return " ".join([*words[:at], opposite, *words[at + 1 :]])
    return None


def _negated(question: LabelledQuestion) -> str | None:
    """Return the query with "not" behind its first auxiliary."""
    find = _NEGATABLE.search(question.query)
    if find is None or " not " in question.query or "n't" in question.query:
        return None
    return f"{question.query[: find.end()]} not{question.query[find.end() :]}"
