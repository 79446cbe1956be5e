"""Tasks of long contexts: documents of a given length with the tokens that answer, and shares of right answers."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

import numpy as np
import torch
from tokenizers import Tokenizer

from qbench.reference import curriculum
from qbench.reference.corpus import EOS, HELDOUT_SEED
from qbench.reference.curriculum import ANSWER_WEIGHT, CHANCE_WEIGHT, preceded, token_id
from qbench.reference.lexicon import COLOURS, KEYS
from qbench.reference.recall import sparse
from qbench.reference.skills import Model, Sizes, skill_report
from qbench.reference.tasks import aliases, counting, echoes, two_word_recall

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


LENGTHS = (1024, 2048, 4096, 8192)  # tokens


def by_length(model: Model, tokenizer: Tokenizer, lengths: Sequence[int], num_answers: int) -> dict[str, dict]:
    """{task: {length: share of answers that are the likeliest next token}}, each from about `num_answers` answers."""
    return {
        task: {length: share_right(model, tokenizer, task, length, num_answers) for length in lengths}
        for task in MEASURED
    }


@torch.no_grad()
def share_right(model: Model, tokenizer: Tokenizer, task: str, length: int, num_answers: int) -> float:
    """The share of one task's answers that the model finds in held-out documents of `length` tokens.

    The text before an answer decides it, and no earlier line asks the same question.
    """
    rng = Random(HELDOUT_SEED + length)
    right, asked = 0, 0
    while asked < num_answers:
        ids = tokenizer.encode(EOS + MEASURED[task](rng, True, int(0.95 * length))).ids[: length + 1]
        tokens = np.array(ids)
        places = answers(tokens, tokenizer).nonzero()[0][: num_answers - asked]
        guesses = model(torch.from_numpy(tokens[None, :-1]))[0].argmax(-1).numpy()
        right += int((guesses[places - 1] == tokens[places]).sum())
        asked += len(places)
    return right / asked


def report_of(model: Model, tokenizer: Tokenizer, context: int, sizes: Sizes) -> dict:
    """The skill report of a model with so many positions; long tasks are part of it if it was trained on them."""
    report = skill_report(model, tokenizer, sizes)
    if context >= max(LENGTHS):
        report["by_length"] = by_length(model, tokenizer, LENGTHS, sizes.answers)
    return report
