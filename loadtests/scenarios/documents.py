"""The documents of the scenarios: written by a seed, each with a fact that a query can ask for."""

import json
import random
from pathlib import Path

PLACES = "harbour lighthouse library mill quarry market station orchard bakery tannery foundry observatory".split()
NAMES = "Ana Ben Carla Dmitri Esra Farid Greta Hugo Ines Jonas Kaya Lotte Milan Nora Oskar Petra Ravi Selma".split()
THINGS = "rye bread, brass lamps, roof slates, wool, sea charts, clocks, barrels, kites, glass beads, saddles".split(
    ", "
)


def write_documents(path: Path, n: int, *, seed: int) -> Path:
    """Write n documents of a few sentences as JSON Lines, each text unlike the others, and return the path."""
    dice = random.Random(seed)  # noqa: S311 - nothing here is a secret
    lines = []
    for i in range(n):
        name, place, thing = dice.choice(NAMES), dice.choice(PLACES), dice.choice(THINGS)
        year = dice.randint(1700, 1990)
        text = (
            f"{name} kept the {place} number {seed}-{i} from {year} on. It was known for its {thing}, of which "
            f"{dice.randint(10, 990)} were sold in a good year. In {year + dice.randint(1, 30)} the {place} burned "
            f"down, and {dice.choice(NAMES)} built it again beside the old {dice.choice(PLACES)}."
        )
        lines.append(json.dumps({"id": f"d{seed}-{i:05}", "title": f"The {place} of {name}", "text": text}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


QUERIES = [f"who kept the {place} known for {thing}" for place in PLACES for thing in THINGS]
