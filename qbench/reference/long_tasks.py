"""The tasks of long contexts as data: how to make a document of a given length, and which tokens are its answers."""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

import numpy as np
from tokenizers import Tokenizer

from qbench.reference import curriculum
from qbench.reference.aliases import aliases
from qbench.reference.counting import counting
from qbench.reference.curriculum import ANSWER_WEIGHT, CHANCE_WEIGHT, preceded, token_id
from qbench.reference.echoes import echoes
from qbench.reference.lexicon import COLOURS, KEYS
from qbench.reference.recall import sparse
from qbench.reference.two_word_recall import two_word_recall

Maker = Callable[[Random, bool, int], str]  # random source, held out, number of tokens (about) -> document


def recall(rng: Random, heldout: bool = False, num_tokens: int = 1024) -> str:
    """`sparse` with as many pairs as the document has room for, up to all keys."""
    return sparse(rng, heldout, num_tokens, num_pairs=rng.randint(2, max(2, min(len(KEYS), num_tokens // 8))))


# The first table is for training, the second for measurements.
MAKERS: Mapping[str, Maker] = {
    "recall": recall,
    "two_word_recall": two_word_recall,
    "aliases": aliases,
    "counting": counting,
    "echoes": echoes,
}
MEASURED: Mapping[str, Maker] = {
    "recall": recall,
    "two_word_recall": two_word_recall,
    "aliases_1_hop": partial(aliases, asked_hops=1),
    "aliases_2_hops": partial(aliases, asked_hops=2),
    "counting": counting,
}


def answers(tokens: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """The tokens that the text before them decides: [..., T] bool.

    These are curriculum's answers, the value after a key of two words, and the number after `ask WORD=`.
    """
    coloured = _coloured_keys(tokens, tokenizer)
    one_word = curriculum.answers(tokens, tokenizer) & ~coloured
    two_words = preceded(tokens, token_id(tokenizer, "get"), 3) & _shifted(coloured)
    return one_word | two_words | preceded(tokens, token_id(tokenizer, "ask"), 3)


def loss_weights(tokens: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """The weight of each token as a target, by curriculum's rules: [..., T] float32."""
    coloured = _coloured_keys(tokens, tokenizer)
    chance = coloured | (preceded(tokens, token_id(tokenizer, "set"), 3) & _shifted(coloured))
    chance |= preceded(tokens, token_id(tokenizer, "ask"), 1)
    weights = np.where(chance, CHANCE_WEIGHT, curriculum.loss_weights(tokens, tokenizer))
    return np.where(answers(tokens, tokenizer), ANSWER_WEIGHT, weights).astype(np.float32)


def _coloured_keys(tokens: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """The names after `set COLOUR` and `get COLOUR`: [..., T] bool."""
    colours = np.isin(tokens, [token_id(tokenizer, f"Ġ{colour}") for colour in COLOURS])
    asked = preceded(tokens, token_id(tokenizer, "get"), 2) | preceded(tokens, token_id(tokenizer, "set"), 2)
    return asked & _shifted(colours)


def _shifted(marks: np.ndarray) -> np.ndarray:
    """`marks` one token later: [..., T] bool."""
    later = np.zeros_like(marks)
    later[..., 1:] = marks[..., :-1]
    return later
