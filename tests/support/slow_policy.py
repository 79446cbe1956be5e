"""Eviction as the papers write it: one layer, one query at a time, float64 lists, and nothing is reused."""

import math
from collections.abc import Callable, Sequence

import numpy as np

# (kept positions, weights of each query of the pass as {position: weight}, tokens seen, prompt tokens, is_prefill) ->
# positions to keep
Choose = Callable[[list[int], list[dict[int, float]], int, int, bool], list[int]]
# The same for all heads of a layer together: lists of kept positions, lists of weights, ... -> lists of positions
ChooseTogether = Callable[[list[list[int]], list[list[dict[int, float]]], int, int, bool], list[list[int]]]


def slow_policy(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, passes: Sequence[int], scale: float, choose: Choose
) -> tuple[np.ndarray, list[int]]:
    """The queries of one KV head's group, after each forward pass of which `choose` picks the positions that stay.

    q        [H / G, T, D]; k, v [T, D]
    passes   number of tokens of each forward pass, T in all
    returns  out [H / G, T, D] float64, and the positions that are held at the end
    """

    def choose_one(held: list[list[int]], observed: list[list[dict[int, float]]], *facts) -> list[list[int]]:
        return [choose(held[0], observed[0], *facts)]

    out, held = slow_heads(q[None], k[None], v[None], passes, scale, choose_one)
    return out[0], held[0]


def slow_heads(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, passes: Sequence[int], scale: float, choose: ChooseTogether
) -> tuple[np.ndarray, list[list[int]]]:
    """`slow_policy` of all KV heads of a layer, which may keep different numbers of tokens.

    q        [G, H / G, T, D]; k, v [G, T, D]
    returns  out [G, H / G, T, D] float64, and the positions that each head holds at the end
    """
    out = np.zeros(q.shape)
    held: list[list[int]] = [[] for _ in k]
    start = prompt = 0
    for count in passes:
        observed: list[list[dict[int, float]]] = [[] for _ in k]
        for g in range(len(k)):
            for t in range(start, start + count):
                seen = [*held[g], *range(start, t + 1)]
                mass = dict.fromkeys(seen, 0.0)
                for h in range(q.shape[1]):
                    scores = [scale * float(q[g, h, t].astype(np.float64) @ k[g, s].astype(np.float64)) for s in seen]
                    most = max(scores)
                    weights = [math.exp(score - most) for score in scores]
                    for s, weight in zip(seen, weights, strict=True):
                        mass[s] += weight / sum(weights)
                        out[g, h, t] += weight / sum(weights) * v[g, s]
                observed[g].append(mass)
            held[g] = [*held[g], *range(start, start + count)]
        start += count
        prompt = start if count > 1 else prompt
        held = [sorted(each) for each in choose(held, observed, start, prompt, count > 1)]
    return out, held
