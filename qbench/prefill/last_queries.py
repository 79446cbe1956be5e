"""Attention weights of the last queries of a prompt, and their sums along columns and diagonals."""

from torch import Tensor

from qbench.prefill.pattern import Prompt


def last_weights(prompt: Prompt, count: int) -> Tensor:
    """[H, t, T]: weights of the last `count` queries, or of all if there are fewer"""
    return prompt.scores(max(prompt.num_tokens - count, 0)).softmax(-1)


def vertical_sums(weights: Tensor) -> Tensor:
    """[H, T]: weight of each key, summed over the queries [H, t, T]"""
    return weights.sum(1)


def slash_sums(weights: Tensor) -> Tensor:
    """[H, T]: weight at each distance from a query to a key, summed over the queries [H, t, T], the last of T"""
    heads, count, num_tokens = weights.shape
    by_place = weights.new_zeros(heads, num_tokens + count - 1)  # place T - 1 - d holds distance d
    for i in range(count):  # row i is token T - count + i: its key s is at distance T - count + i - s
        by_place[:, count - 1 - i : count - 1 - i + num_tokens] += weights[:, i]
    return by_place[:, :num_tokens].flip(1)  # later places are keys after their query, whose weights are 0
