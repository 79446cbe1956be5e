"""Lists of words said early and said again late, in another order of lists: dense recall over long distances."""

from random import Random

from qbench.reference.lexicon import KEYS, VALUES
from qbench.reference.recall import Event, among_prose

LIST_WORDS = 32
MAX_LISTS = len(KEYS + VALUES) // LIST_WORDS


def echoes(rng: Random, heldout: bool = False, num_tokens: int = 1024) -> str:
    """Lists without common words in the first third, the same lists in the last third, prose between."""
    num_lists = rng.randint(1, max(1, min(MAX_LISTS, num_tokens // (3 * LIST_WORDS))))
    list_words = min(LIST_WORDS, num_tokens // 3)
    words = rng.sample(KEYS + VALUES, num_lists * list_words)
    events: list[Event] = []
    for i in range(num_lists):
        line = " ".join(words[i * list_words : (i + 1) * list_words])
        events += [(rng.uniform(0.0, 0.33), f"say {line}\n"), (rng.uniform(0.67, 1.0), f"again {line}\n")]
    return among_prose(rng, heldout, events, num_tokens - 2 * len(words))
