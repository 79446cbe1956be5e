"""Shares of right answers by task and context length, on held-out documents that fill the context."""

from collections.abc import Sequence
from random import Random

import numpy as np
import torch
from tokenizers import Tokenizer

from qbench.reference.corpus import EOS, HELDOUT_SEED
from qbench.reference.long_tasks import MEASURED, answers
from qbench.reference.skills import Model

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
