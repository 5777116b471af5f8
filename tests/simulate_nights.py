"""`python -m tests.simulate_nights`: how often nights raise a false alarm, and how many nights a real change takes.

110 nights, looked at every night from the 30th on, as a nightly job does; +5 % or +10 % from night 70 on. The noise is
invented: it ranks rules, and predicts no rate. Prints a Markdown table (docs/history.md).
"""

import argparse
from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

import numpy as np

from nightsight.history.levels import changes
from nightsight.intervals import Floats
from nightsight.model.history import off_level

NIGHTS: Final = 110
FROM: Final = 30
STEP: Final = 70
NEAR: Final = 3  # nights by which a place may be wrong
SIZES: Final = (1.05, 1.10)
Rule = Callable[[Floats], Sequence[Sequence[int]]]


def white(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Noise of 1 %, each run its own."""
    return np.exp(random.normal(0, 0.01, shape))


def outliers(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """AR(1) of 0.5 from night to night, of 1 % in all, and of each run 3 % that are about 8 % slower."""
    own = random.normal(0, 0.01 * np.sqrt(1 - 0.25), shape[:2])
    logs = np.zeros(shape[:2])
    for night in range(shape[1]):
        logs[:, night] = 0.5 * logs[:, night - 1] + own[:, night]
    slow = (random.random(shape) < 0.03) * random.normal(0.08, 0.02, shape)
    return np.exp(logs[:, :, None] + slow)


def one_bad_night(values: Floats) -> list[list[int]]:
    """Alarm when the newest night is off: what many do."""
    counts = (off_level(line[-11:], least=10)[0] for line in values)
    return [[len(line) - 1] if count == 1 else [] for line, count in zip(values, counts, strict=True)]


def simple(values: Floats) -> list[list[int]]:
    """Three nights in a row: what stands in for ruptures."""
    counts = (off_level(line)[0] for line in values)
    return [[len(line) - count] if count >= 3 else [] for line, count in zip(values, counts, strict=True)]


def alarms(rule: Rule, values: Floats) -> list[list[tuple[int, int]]]:
    """Return the alarms of each series as (night that raised it, place); one within NEAR of another is the same."""
    raised: list[list[tuple[int, int]]] = [[] for _ in values]
    for night in range(FROM, NIGHTS + 1):
        for line, places in zip(raised, rule(values[:, :night]), strict=True):
            new = (place for place in places if all(abs(place - earlier) > NEAR for _, earlier in line))
            line += [(night, place) for place in new]
    return raised


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=100)
    count = parser.parse_args().series
    rules: dict[str, Rule] = {
        "PELT, as used": changes,
        "three nights in a row (without ruptures)": simple,
        "one night": one_bad_night,
    }
    print(f"{count} series, {NIGHTS - FROM} nights each.\n")
    steps = " | ".join(f"{size - 1:+.0%}: median, 90 %, missed" for size in SIZES)
    print(f"| noise | runs a night | rule | false alarms a series | {steps} |\n|---|---|---|---|{'---|' * len(SIZES)}")
    for world, runs, (name, rule) in product((white, outliers), (1, 3), rules.items()):
        values = np.median(world(np.random.default_rng(1), (count, NIGHTS, runs)), axis=2)
        false = sum(map(len, alarms(rule, values))) / count
        lines = []
        for size in SIZES:
            moved = alarms(rule, np.where(np.arange(NIGHTS) >= STEP, size, 1.0) * values)
            first = (min((at for at, place in each if abs(place - STEP) <= NEAR), default=0) for each in moved)
            delays = [night - STEP for night in first if night]
            lines.append(
                f"{np.median(delays):.0f}, {np.quantile(delays, 0.9):.0f} nights, {1 - len(delays) / count:.0%}"
            )
        print(f"| {world.__name__} | {runs} | {name} | {false:.2f} | {' | '.join(lines)} |", flush=True)


if __name__ == "__main__":
    main()
