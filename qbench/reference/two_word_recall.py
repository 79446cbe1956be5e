"""Recall with keys of two words: `set red babel acorn`, later `get red babel acorn`.

Most words belong to several keys, so an answer needs both words: the last one alone names the wrong values, too.
"""

from itertools import product
from random import Random

from qbench.reference.lexicon import COLOURS, KEYS, VALUES
from qbench.reference.recall import Event, among_prose, get_line, set_line
from qbench.reference.split import is_heldout

KEYS_PER_NAME = 4
PAIR_TOKENS = 10  # of a `set` line and its `get` line


def two_word_bindings(rng: Random, count: int, heldout: bool) -> dict[str, str]:
    """Distinct keys `COLOUR NAME` with values; one (key, value) in ten is never bound in training."""
    names = rng.sample(KEYS, min(len(KEYS), count // KEYS_PER_NAME + 2))
    pairs = {}
    for colour, name in rng.sample(list(product(COLOURS, names)), count):
        key = f"{colour} {name}"
        pairs[key] = rng.choice(VALUES)
        while is_heldout("two words", key, pairs[key]) != heldout:
            pairs[key] = rng.choice(VALUES)
    return pairs


def two_word_recall(rng: Random, heldout: bool = False, num_tokens: int = 1024, num_pairs: int | None = None) -> str:
    """Prose with pairs set, three quarters of them in front, and each asked for once, anywhere later."""
    pairs = two_word_bindings(rng, num_pairs or rng.randint(2, max(2, num_tokens // PAIR_TOKENS)), heldout)
    events: list[Event] = []
    for key, value in pairs.items():
        start = 0.0 if rng.random() < 0.75 else rng.random()
        events += [(start, set_line(key, value)), (rng.uniform(start, 1.0), get_line(key, value))]
    return among_prose(rng, heldout, events, num_tokens - PAIR_TOKENS * len(pairs))
