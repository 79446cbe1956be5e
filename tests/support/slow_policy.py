"""Eviction as the papers write it: one head of one layer, one query at a time, float64 lists, and nothing is reused."""

import math
from collections.abc import Callable, Sequence

import numpy as np

# (kept positions, weights of each query of the pass as {position: weight}, tokens seen, prompt tokens, is_prefill) ->
# positions to keep
Choose = Callable[[list[int], list[dict[int, float]], int, int, bool], list[int]]


def slow_policy(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, passes: Sequence[int], scale: float, choose: Choose
) -> tuple[np.ndarray, list[int]]:
    """The queries of one KV head's group, after each forward pass after which `choose` picks the positions that stay.

    q        [H / G, T, D]; k, v [T, D]
    passes   number of tokens of each forward pass, T in all
    returns  out [H / G, T, D] float64, and the positions that are held at the end
    """
    out = np.zeros(q.shape)
    held: list[int] = []
    start = prompt = 0
    for count in passes:
        observed = []
        for t in range(start, start + count):
            seen = [*held, *range(start, t + 1)]
            mass = dict.fromkeys(seen, 0.0)
            for h in range(len(q)):
                scores = [scale * float(q[h, t].astype(np.float64) @ k[s].astype(np.float64)) for s in seen]
                most = max(scores)
                weights = [math.exp(score - most) for score in scores]
                for s, weight in zip(seen, weights, strict=True):
                    mass[s] += weight / sum(weights)
                    out[h, t] += weight / sum(weights) * v[s]
            observed.append(mass)
        held = [*held, *range(start, start + count)]
        start += count
        prompt = start if count > 1 else prompt
        held = sorted(choose(held, observed, start, prompt, count > 1))
    return out, held
