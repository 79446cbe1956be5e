"""How far a step of latent attention may be from its definition, each number by the sums that it is made of."""

import numpy as np

from cpu_kernels.attention_bound import UNIT, Scores, roundings, scores_of, seen_tokens, weighted_bound
from cpu_kernels.mla import MlaStep, absorb_ref, latent_queries_ref, latent_sums_ref, multiplied_ref, values_of_ref

__all__ = ["ROTATION", "mla_step_bound", "product_bound"]

ROTATION = 2 * UNIT  # of a product, and of its sum with another, over both magnitudes
INT8_FACTORS = 3  # roundings of int8 in addition to its sums: of a scale, its product, and a weight in the definition


def product_bound(definition, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Bound of absorb_ref's or values_of_ref's products of x [M, H, K]: float32 sums of K terms, in any format of
    heads.
    """
    return roundings(x.shape[2] + INT8_FACTORS) * definition(np.abs(x), np.abs(weight))


def mla_step_bound(step: MlaStep) -> np.ndarray:
    """Bound of the output of a step, from `mla_step_ref` of the same: [T, H, V].

    A query's own roundings come to its scores with the rows that it meets. The error of a row's weight reaches an
    output times the row as a value of that head. Roundings of sums over rows are those of each channel, and reach the
    outputs with the factors of their values.
    """
    (keys, values), (cos, sin), q, rows = step.heads, step.rotation, step.q, step.rows
    queries = np.concatenate(latent_queries_ref(q, keys, cos, sin), 2)
    absorbed = product_bound(absorb_ref, q[..., : keys.shape[1]], keys)
    rotated = ROTATION * latent_queries_ref(np.abs(q), np.abs(keys), np.abs(cos), np.abs(sin))[1]
    off = np.concatenate((absorbed, rotated), 2)  # [T, H, R + D]
    if step.arithmetic == "bf16":  # a number between these two, after the product with the factor, is rounded to bf16
        off = off + 2 * UNIT * np.abs(queries)
        off = multiplied_ref(step, queries + off) - multiplied_ref(step, queries - off)
    queries, off = (x.swapaxes(0, 1) for x in (multiplied_ref(step, queries), off))

    held = rows[None, None]  # [1, 1, S, R + D]
    sees = seen_tokens(len(q), len(rows))
    scores = scores_of(queries[None], held, step.softmax_scale, sees, step.arithmetic)
    of_queries = np.where(sees, off @ np.abs(rows.T.astype(np.float64)) * step.softmax_scale, 0.0)
    scores = Scores(scores.value, scores.error + of_queries)
    latents = held[..., : keys.shape[2]]  # [1, 1, S, R]
    as_values = latents @ values.astype(np.float64).swapaxes(1, 2)  # [1, H, S, V]
    of_weights = weighted_bound(scores, as_values, step.arithmetic)[0]  # [H, T, V]
    without_error = Scores(scores.value, np.zeros_like(scores.error))
    of_sums = values_of_ref(weighted_bound(without_error, latents)[0].swapaxes(0, 1), np.abs(values))  # [T, H, V]
    return of_weights.swapaxes(0, 1) + of_sums + product_bound(values_of_ref, latent_sums_ref(step), values)
