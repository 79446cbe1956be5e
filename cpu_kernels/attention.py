"""Attention over stored keys and values, its definition, and how they are stored.

    out[t] = sum over seen s of softmax(q[t] . k[s] * softmax_scale) v[s]

Query t of a sequence of S tokens, of which the T last are queries, is token p = S - T + t and sees the tokens s with
p - window < s <= p (all s <= p if window is 0). With H query and G key and value heads, h reads h // (H / G).

The store has the bytes of quant.kv's codecs, only placed differently (csrc/attention/store/layout.h draws it). Sums are
float32 and fused; weights are powers of 2. The kernels differ from the definition in these roundings, and where codes
are multiplied as they are in those of q and of the weights: integers with 16 bits (`round_queries_ref`), float8 under
avx512_bf16 and amx as bfloat16 (`bf16_queries_ref`). cpu_kernels.attention_bound says how far that may take a result.

With AMX, a sequence that brings ATTENTION_TILED_ROWS queries times heads per kv head, or more, is multiplied by tiles:
bf16, f16 and float8 as bfloat16, with q and weights rounded, and f16 keys and values, too (`as_multiplied_ref`). So a
query of a long prompt differs by these roundings from the same query alone. A store made with exact=True takes no
tiles, and with QBENCH_F16_COMPUTE=float32 no f16 store does.

Tiles multiply latents for any number of queries (`multiplies_latents_in`), so a query has the bits that it has alone.
"""

import os
from typing import NamedTuple

import numpy as np

from cpu_kernels._ext import ATTENTION_TILED_ROWS, KVStore, attend_latents, chosen_isa
from cpu_kernels.linear_float import round_to_bf16_ref

__all__ = [
    "Attended",
    "KVStore",
    "as_multiplied_ref",
    "attend_latents",
    "attention_ref",
    "bf16_queries_ref",
    "block_attention_ref",
    "key_mass_ref",
    "latent_attention_ref",
    "latents_as_multiplied_ref",
    "multiplies_in",
    "multiplies_latents_in",
    "rope_ref",
    "round_queries_ref",
    "sink_attention_ref",
]

LOG2_E = np.float32(np.log2(np.e))
SMALLEST_QUERY = np.float32(2.0**-112)  # below, 32767 / absmax overflows


def multiplies_in(format: str, queries: int = 1, heads_per_kv: int = 1, isa: str | None = None) -> str:
    """The arithmetic in which a kernel multiplies this format: fp32, int16 or bf16.

    queries, heads_per_kv   new tokens of a sequence, and query heads per kv head: AMX multiplies many rows by tiles
    isa                     the kernel; None: the chosen one
    """
    isa = isa or chosen_isa("attention")
    is_tiled = isa == "amx" and queries > 1 and queries * heads_per_kv >= ATTENTION_TILED_ROWS
    if format in ("int8", "int4"):
        return "bf16" if is_tiled else "int16"
    if format in ("kivi4", "kivi2"):
        return "int16"
    if format in ("e4m3", "e5m2"):
        return "bf16" if isa in ("avx512_bf16", "amx") else "fp32"
    in_tiles = format == "bf16" or (format == "f16" and os.environ.get("QBENCH_F16_COMPUTE") != "float32")
    return "bf16" if is_tiled and in_tiles else "fp32"


def as_multiplied_ref(x: np.ndarray, format: str, arithmetic: str) -> np.ndarray:
    """Stored keys or values as that arithmetic takes them: bfloat16 rounds f16 and integers, and all else is exact."""
    return round_to_bf16_ref(x) if format in ("f16", "int8", "int4") and arithmetic == "bf16" else x


def multiplies_latents_in(format: str, isa: str | None = None) -> str:
    """The arithmetic in which a kernel multiplies latents of this format: fp32, or bf16 in the tiles of AMX.

    In bf16 the queries, times softmax_scale / ln 2, and decoded latents are rounded to bfloat16, and the weights, too,
    before values are multiplied with them. Sums are float32. Calls with exact=True are fp32.
    """
    is_exact = format == "f32" or (format == "f16" and os.environ.get("QBENCH_F16_COMPUTE") == "float32")
    return "bf16" if (isa or chosen_isa("attention")) == "amx" and not is_exact else "fp32"


class Attended(NamedTuple):
    """Result of attention, and the weights that its keys received.

    out   [B, H, T, D] float64
    lse   [B, H, T] float64: log of the sum of exp(scores) over the keys that a query sees
    mass  [B, G, S] float64: weight of a key, summed over the queries and the heads of its group
    """

    out: np.ndarray
    lse: np.ndarray
    mass: np.ndarray


def attention_ref(q: np.ndarray, k: np.ndarray, v: np.ndarray, softmax_scale: float, window: int = 0) -> Attended:
    """One query of one head at a time, in float64.

    q        [B, H, T, D] float
    k, v     [B, G, S, D] float, S >= T, H a multiple of G
    window   tokens that a query sees, itself included; 0: all before it
    """
    return sink_attention_ref(q, q, k, v, softmax_scale, window, 0)


def sink_attention_ref(
    q: np.ndarray, sink_q: np.ndarray, k: np.ndarray, v: np.ndarray, softmax_scale: float, window: int, num_sinks: int
) -> Attended:
    """`attention_ref` of queries that see the first num_sinks tokens, too, as sink_q [B, H, T, D] meets their keys.

    source   Xiao et al. 2023, arXiv:2309.17453, section 3.2
    """
    batch, num_heads, num_queries, _ = q.shape
    num_keys, heads_per_kv = k.shape[2], num_heads // k.shape[1]
    out, lse, mass = np.empty(q.shape), np.empty(q.shape[:3]), np.zeros(k.shape[:3])
    for b, h, t in np.ndindex(batch, num_heads, num_queries):
        end, g = num_keys - num_queries + t + 1, h // heads_per_kv
        sinks = np.arange(min(num_sinks, end))
        near = np.arange(max(num_sinks, end - window) if window else num_sinks, end)
        seen = np.concatenate((sinks, near))
        keys, values = (x[b, g].astype(np.float64) for x in (k, v))
        pairs = ((sink_q, sinks), (q, near))
        scores = np.concatenate([keys[its] @ query[b, h, t].astype(np.float64) for query, its in pairs]) * softmax_scale
        weights = np.exp(scores - scores.max())
        out[b, h, t] = weights / weights.sum() @ values[seen]
        lse[b, h, t] = scores.max() + np.log(weights.sum())
        mass[b, g, seen] += weights / weights.sum()
    return Attended(out, lse, mass)


def block_attention_ref(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    softmax_scale: float,
    offsets: np.ndarray,
    indices: np.ndarray,
    key_block: int = 128,
    query_block: int = 128,
) -> tuple[np.ndarray, np.ndarray]:
    """`attention_ref` of one sequence whose queries see only listed blocks of the keys, one query at a time.

    q        [1, H, T, D] float; query block i is its tokens from i * query_block on
    k, v     [1, G, S, D] float
    offsets  [L, N + 1] int64: list i of row l is indices[offsets[l, i] : offsets[l, i + 1]]; L is 1 or H
    indices  [n] int32: blocks of key_block tokens
    returns  out [1, H, T, D] and lse [1, H, T], float64: 0 and minus infinity for a query that sees no token
    """
    _, num_heads, num_queries, _ = q.shape
    num_keys, heads_per_kv = k.shape[2], num_heads // k.shape[1]
    out, lse = np.zeros(q.shape), np.full(q.shape[:3], -np.inf)
    for h, t in np.ndindex(num_heads, num_queries):
        row, block = offsets[h if len(offsets) > 1 else 0], t // query_block
        blocks = indices[row[block] : row[block + 1]].astype(np.int64)
        tokens = (blocks[:, None] * key_block + np.arange(key_block)).ravel()
        seen = tokens[tokens <= num_keys - num_queries + t]
        if not len(seen):
            continue
        keys, values = (x[0, h // heads_per_kv, seen].astype(np.float64) for x in (k, v))
        scores = keys @ q[0, h, t].astype(np.float64) * softmax_scale
        weights = np.exp(scores - scores.max())
        out[0, h, t] = weights / weights.sum() @ values
        lse[0, h, t] = scores.max() + np.log(weights.sum())
    return out, lse


def key_mass_ref(q: np.ndarray, k: np.ndarray, lse: np.ndarray, softmax_scale: float, window: int = 0) -> np.ndarray:
    """`Attended.mass` of these queries from their lse, so that a prefill needs no [T, S] matrix: [B, G, S] float64.

    q, k, window   as `attention_ref` takes them; q may be the last queries alone
    lse            [B, H, T] of these queries
    """
    num_queries, num_keys, heads_per_kv = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    positions = num_keys - num_queries + np.arange(num_queries)[:, None]  # [T, 1]
    back = positions - np.arange(num_keys)  # [T, S]: tokens from a key to its query
    sees = (back >= 0) & (back < (window or num_keys))
    keys = np.repeat(k.astype(np.float64), heads_per_kv, axis=1)  # [B, H, S, D]
    scores = q.astype(np.float64) @ keys.swapaxes(2, 3) * softmax_scale  # [B, H, T, S]
    weights = np.where(sees, np.exp(scores - lse[..., None]), 0)
    return weights.sum(2).reshape(*k.shape[:2], heads_per_kv, num_keys).sum(2)


def round_queries_ref(q: np.ndarray, factor: float | np.ndarray) -> np.ndarray:
    """The factor of integer keys: q * factor with 16 bits for each head of each query, over factor again.

    q        [..., D] float32
    factor   first factor of q, as float32: the softmax's scale times log2(e), and keys' if given
    returns  [..., D] float64
    """
    scaled = q * np.float32(factor)
    largest = np.abs(scaled).max(axis=-1, keepdims=True)
    zero = largest < SMALLEST_QUERY
    codes = np.rint(scaled * np.where(zero, np.float32(0), np.float32(32767) / np.where(zero, np.float32(1), largest)))
    return codes.astype(np.float64) * (largest / np.float32(32767)) / np.float32(factor)


def bf16_queries_ref(q: np.ndarray, factor: float | np.ndarray) -> np.ndarray:
    """q * factor (both float32) to the nearest bfloat16, ties to even, over factor again: [..., D] float64"""
    return round_to_bf16_ref(q * np.float32(factor)).astype(np.float64) / np.float32(factor)


def latents_as_multiplied_ref(
    q: np.ndarray, latents: np.ndarray, softmax_scale: float, arithmetic: str
) -> tuple[np.ndarray, np.ndarray]:
    """Queries and decoded latents as `multiplies_latents_in` names it: rounded to bfloat16, or as they are."""
    if arithmetic == "fp32":
        return q, latents
    return bf16_queries_ref(q, np.float32(softmax_scale) * LOG2_E), round_to_bf16_ref(latents)


def latent_attention_ref(q: np.ndarray, latents: np.ndarray, softmax_scale: float, value_dim: int) -> np.ndarray:
    """Absorbed multi-head latent attention: a row is every head's key and, in its first channels, every head's value.

    q        [B, H, K] float: one query a head, with the up-projection of keys absorbed
    latents  [B, S, K] float
    returns  [B, H, value_dim] float64
    source   DeepSeek-V2, arXiv:2405.04434, section 2.1
    """
    rows = latents[:, None]  # [B, 1, S, K]
    return attention_ref(q[:, :, None], rows, rows, softmax_scale).out[:, :, 0, :value_dim]


def rope_ref(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x [B, H, T, D] with pair (i, i + D / 2) of every head turned; cos, sin [T, D], sin negative in the first half."""
    swapped = np.roll(x, x.shape[-1] // 2, axis=-1)
    return x.astype(np.float64) * cos + swapped.astype(np.float64) * sin
