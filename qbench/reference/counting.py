"""Counting: words are said from time to time, and `ask WORD=N` gives how often one was said, 1 to 9 times."""

from random import Random

from qbench.reference.lexicon import VALUES
from qbench.reference.recall import Event, among_prose
from qbench.reference.split import is_heldout

MOST = 9
ASKED_FROM = 0.95  # share of the document after which nothing more is said
WORD_TOKENS = 20  # of a word that is said five times and asked for once


def counting(rng: Random, heldout: bool = False, num_tokens: int = 1024) -> str:
    """Prose with lines of one said word between its sentences; the questions end the document.

    One (word, number) in ten is never asked for in training.
    """
    events: list[Event] = []
    num_words = rng.randint(2, max(2, min(len(VALUES) // 2, num_tokens // 30)))
    for word in rng.sample(VALUES, num_words):
        allowed = [number for number in range(1, MOST + 1) if is_heldout("count", word, number) == heldout]
        if allowed:
            number = rng.choice(allowed)
            events += [(rng.uniform(0.0, ASKED_FROM), f"say {word}\n") for _ in range(number)]
            events.append((rng.uniform(ASKED_FROM, 1.0), f"ask {word}={number}\n"))
    return among_prose(rng, heldout, events, num_tokens - WORD_TOKENS * num_words)
