"""Absorbed multi-head latent attention from projections to values: the definition.

    row of a token    [rms_norm(latent) , rope(key)]                        as the cache's format rounds it
    query of a head   [q[h] @ keys[h]   , rope(q_rope[h])]                  as long as a row
    output of a head  values[h] @ (softmax(query . rows * softmax_scale) rows[: R])

Rotary pairs are neighbours in projections and half of the width apart in rows and queries. Sums are float32 and fused;
keys and values are kept in float32, float16, bfloat16 or int8 (round_heads_ref), and multiplied as they are kept.
"""

from dataclasses import dataclass

import numpy as np

from cpu_kernels._ext import MLA_GROUP_INPUTS, MlaHeads
from cpu_kernels.attention import latent_attention_ref, latents_as_multiplied_ref, rope_ref
from cpu_kernels.fused import rms_norm_ref

__all__ = [
    "MlaHeads",
    "MlaStep",
    "absorb_ref",
    "latent_queries_ref",
    "latent_row_ref",
    "latent_sums_ref",
    "mla_step_ref",
    "multiplied_ref",
    "round_heads_ref",
    "values_of_ref",
]


def round_heads_ref(weight: np.ndarray, axis: int) -> np.ndarray:
    """int8 heads [H, rows, rank] read back: codes of -127 to 127 times absmax / 127 of a group of inputs on `axis`."""
    groups = np.split(weight, range(MLA_GROUP_INPUTS, weight.shape[axis], MLA_GROUP_INPUTS), axis)
    scales = [np.abs(group).max(axis, keepdims=True) / np.float32(127) for group in groups]
    codes = [np.rint(group / np.where(scale, scale, 1)) for group, scale in zip(groups, scales, strict=True)]
    return np.concatenate([code * scale for code, scale in zip(codes, scales, strict=True)], axis, dtype=np.float32)


def absorb_ref(q: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """q [M, H, N], keys [H, N, R] -> [M, H, R] float64"""
    return np.einsum("mhn,hnr->mhr", q.astype(np.float64), keys.astype(np.float64))


def values_of_ref(latents: np.ndarray, values: np.ndarray) -> np.ndarray:
    """latents [M, H, R], values [H, V, R] -> [M, H, V] float64"""
    return np.einsum("mhr,hvr->mhv", latents.astype(np.float64), values.astype(np.float64))


def latent_row_ref(latent: np.ndarray, norm: np.ndarray, eps: float, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """latent [T, R + D] as projected; norm [R]; cos, sin [T, D] -> [T, R + D] float32"""
    kept, turned = np.split(latent, [len(norm)], axis=1)
    rotated = rope_ref(_halves(turned)[None, None], cos, sin)[0, 0]
    return np.concatenate((rms_norm_ref(kept, norm, eps), rotated), 1).astype(np.float32)


def latent_queries_ref(
    q: np.ndarray, keys: np.ndarray, cos: np.ndarray, sin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """q [T, H, N + D] as projected -> the parts for latents [T, H, R] and for rotated keys [T, H, D]: float64"""
    kept, turned = np.split(q, [keys.shape[1]], axis=2)
    rotated = rope_ref(_halves(turned).swapaxes(0, 1)[None], cos, sin)[0].swapaxes(0, 1)
    return absorb_ref(kept, keys), rotated


@dataclass(frozen=True, slots=True)
class MlaStep:
    """One sequence, whose last T tokens are new.

    q              [T, H, N + D] float32 as projected
    rows           [S, R + D] as they are multiplied, those of the new tokens included: in bf16 rounded to bfloat16
    heads          keys [H, N, R] and values [H, V, R]
    rotation       cos and sin [T, D] of the new tokens
    arithmetic     as `multiplies_latents_in` names it: bf16 rounds absorbed queries to bfloat16
    """

    q: np.ndarray
    rows: np.ndarray
    heads: tuple[np.ndarray, np.ndarray]
    rotation: tuple[np.ndarray, np.ndarray]
    softmax_scale: float
    arithmetic: str = "fp32"


def mla_step_ref(step: MlaStep) -> np.ndarray:
    """The outputs of the new tokens, [T, H, V] float64.

    source   DeepSeek-V2, arXiv:2405.04434, section 2.1
    """
    return values_of_ref(latent_sums_ref(step), step.heads[1])


def latent_sums_ref(step: MlaStep) -> np.ndarray:
    """Sums of `mla_step_ref`, before values are multiplied: [T, H, R] float64"""
    keys, past = step.heads[0], len(step.rows) - len(step.q)
    queries = multiplied_ref(step, np.concatenate(latent_queries_ref(step.q, keys, *step.rotation), 2))
    sums = [
        latent_attention_ref(query[None], step.rows[None, : past + t + 1], step.softmax_scale, keys.shape[2])[0]
        for t, query in enumerate(queries)
    ]
    return np.stack(sums)


def multiplied_ref(step: MlaStep, queries: np.ndarray) -> np.ndarray:
    """Absorbed queries [T, H, R + D] as the step's arithmetic takes them."""
    return latents_as_multiplied_ref(queries, step.rows, step.softmax_scale, step.arithmetic)[0]


def _halves(x: np.ndarray) -> np.ndarray:
    return np.concatenate((x[..., ::2], x[..., 1::2]), -1)
