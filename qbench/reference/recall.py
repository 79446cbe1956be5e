"""Key-value recall: `set KEY VALUE` said once, `get KEY VALUE` asked for later, at any distance.

Keys and values are single tokens and the answer follows its key both times, so a model that has learnt to look up the
token after the last occurrence of the present token (induction) answers rightly at any distance.
"""

from itertools import islice
from random import Random

from qbench.reference.lexicon import KEYS, VALUES, is_heldout
from qbench.reference.prose import sentences

SENTENCE_TOKENS = 10  # of prose, about: sizes the documents, nothing depends on it
Event = tuple[float, str]  # when in [0, 1], and the line


def bindings(rng: Random, count: int, heldout: bool) -> dict[str, str]:
    """Distinct keys with values; one (key, value) in ten is never bound in training."""
    pairs = {}
    for key in rng.sample(KEYS, count):
        pairs[key] = rng.choice(VALUES)
        while is_heldout("recall", key, pairs[key]) != heldout:
            pairs[key] = rng.choice(VALUES)
    return pairs


def set_line(key: str, value: str) -> str:
    return f"set {key} {value}\n"


def get_line(key: str, value: str) -> str:
    return f"get {key} {value}\n"


def echo(rng: Random, heldout: bool = False, num_words: int | None = None) -> str:
    """Random words said, and said again: every word of the second line followed the same word before."""
    words = rng.sample(KEYS + VALUES, num_words or rng.randint(6, 28))
    return f"say {' '.join(words)}\nagain {' '.join(words)}\n"


def dense(rng: Random, heldout: bool = False, num_pairs: int | None = None) -> str:
    """Some pairs set, then as many asked for, in random order: nearly every line teaches recall."""
    pairs = bindings(rng, num_pairs or rng.randint(4, 24), heldout)
    asked = rng.choices(tuple(pairs), k=len(pairs))
    return "".join(set_line(*pair) for pair in pairs.items()) + "".join(get_line(key, pairs[key]) for key in asked)


def sparse(rng: Random, heldout: bool = False, num_tokens: int | None = None, num_pairs: int | None = None) -> str:
    """Prose with pairs set and asked for between its sentences, each pair asked for once.

    Three quarters of the pairs are set in front, so distances spread evenly over the whole document.
    """
    num_tokens = num_tokens or rng.randint(256, 1100)
    pairs = bindings(rng, num_pairs or rng.randint(8, min(48, num_tokens // 12)), heldout)
    events: list[Event] = []
    for key, value in pairs.items():
        start = 0.0 if rng.random() < 0.75 else rng.random()
        events += [(start, set_line(key, value)), (rng.uniform(start, 1.0), get_line(key, value))]
    return among_prose(rng, heldout, events, num_tokens - 8 * len(pairs))


def among_prose(rng: Random, heldout: bool, events: list[Event], prose_tokens: int) -> str:
    """The lines of `events` in order of time, between about `prose_tokens` tokens of sentences spread evenly."""
    num_sentences = max(0, prose_tokens) // SENTENCE_TOKENS
    prose = islice(sentences(rng, heldout), num_sentences)
    lines = events + [((i + 0.5) / num_sentences, line + "\n") for i, line in enumerate(prose)]
    return "".join(line for _, line in sorted(lines, key=lambda event: event[0]))
