"""How far a kernel of attention may be from its definition, each number by the sums that it is made of.

    out = sum p v        p = w / sum w        w = exp(score)        score = sum q k * softmax_scale

A weight that is off by a share e of itself moves out by p e (v - out), at most p |e| (|v| + |out|); that share is the
error of its score, and the rounding of its power. The rest are roundings of the two sums over tokens, and of the
weights if those are rounded before values are multiplied with them.

Independent roundings, uniform from -h to h, have a variance of h^2 / 3 each, and their moments are less
than a normal variable's of that variance. So a sum of them leaves six standard deviations, LUCK * sqrt(sum h^2), with a
probability of 2 exp(-6^2 / 2) = 3e-8 at most. As few as LUCK^2 = 12 are bounded by the sum of their h.
"""

from dataclasses import dataclass

import numpy as np

from cpu_kernels._ext import ATTENTION_CHUNK_TOKENS  # whose integer weights are rounded together

__all__ = [
    "ChannelGroups",
    "Scores",
    "attention_bound",
    "channel_scores_of",
    "latent_bound",
    "lse_bound",
    "mass_bound",
    "roundings",
    "scores_of",
    "seen_tokens",
    "sink_attention_bound",
    "sink_scores_of",
    "weighted_bound",
]

UNIT = 2.0**-24  # of a rounding to float32, relative
BF16_UNIT = 2.0**-8  # likewise to bfloat16, of 8 significant bits
LUCK = 6 / 3**0.5
RESCALED_TOKENS = 64  # at least, until a maximum that rose scales the earlier sum
SMALLEST = 2.0**-126  # a power or product below it may be 0
POWER = 2.0**-22  # of 2^x, relative: 2^-23, and the product that it scales
# From a query's first product to its score, in addition to one rounding per channel: q, scales of q and k, the
# softmax's.
SCORE_FACTORS = 4
SUM_FACTORS = 8  # likewise of weights and values, and of parts that are put together
INTEGER_GROUP = 32  # channels, or more, whose integer products are summed without a rounding


@dataclass(frozen=True, slots=True)
class Scores:
    """value  [..., S] float64, minus infinity where a token is not seen
    error  [..., S] how far the kernel's may be from it
    """

    value: np.ndarray
    error: np.ndarray


def roundings(count: int) -> float:
    """Largest sum of `count` roundings of a float32 sum, over the sum of its terms' magnitudes."""
    return UNIT * min(count, LUCK * np.sqrt(count))


def attention_bound(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, softmax_scale: float, window: int = 0, arithmetic: str = "fp32"
) -> np.ndarray:
    """Bound of a kernel's result, from `attention_ref` of the same: [B, H, T, D].

    q, k, v     as `attention_ref` takes them: q as the kernel rounds it, k and v as they are kept
    arithmetic  as `multiplies_in` names it
    """
    sees = seen_tokens(q.shape[2], k.shape[2], window)
    return weighted_bound(scores_of(q, k, softmax_scale, sees, arithmetic), v, arithmetic)


def latent_bound(q: np.ndarray, rows: np.ndarray, softmax_scale: float, value_dim: int, arithmetic: str) -> np.ndarray:
    """Bound of a kernel's result, from `latent_attention_ref` of the same: [B, H, value_dim].

    q, rows     [B, H, K], [B, S, K] as the kernel multiplies them
    arithmetic  as `multiplies_latents_in` names it
    """
    keys = rows[:, None]  # [B, 1, S, K]
    return attention_bound(q[:, :, None], keys, keys[..., :value_dim], softmax_scale, arithmetic=arithmetic)[:, :, 0]


def sink_attention_bound(
    q: np.ndarray,
    sink_q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    softmax_scale: float,
    window: int,
    num_sinks: int,
    arithmetic: str = "fp32",
) -> np.ndarray:
    """Likewise from `sink_attention_ref`: a score is the one query's or the other's."""
    return weighted_bound(sink_scores_of(q, sink_q, k, softmax_scale, window, num_sinks, arithmetic), v, arithmetic)


def sink_scores_of(
    q: np.ndarray,
    sink_q: np.ndarray,
    k: np.ndarray,
    softmax_scale: float,
    window: int,
    num_sinks: int,
    arithmetic: str = "fp32",
) -> Scores:
    """Scores of a window and of the first num_sinks tokens, which sink_q meets: [B, H, T, S]."""
    everything = seen_tokens(q.shape[2], k.shape[2])
    is_sink = everything & (np.arange(k.shape[2]) < num_sinks)
    is_near = seen_tokens(q.shape[2], k.shape[2], window) & ~is_sink
    pairs = ((sink_q, is_sink), (q, is_near))
    far, near = (scores_of(query, k, softmax_scale, sees, arithmetic) for query, sees in pairs)
    return Scores(np.maximum(far.value, near.value), far.error + near.error)  # each 0 where the other is seen


def seen_tokens(num_queries: int, num_keys: int, window: int = 0) -> np.ndarray:
    """[T, S] bool: tokens that each query sees"""
    back = num_keys - num_queries + np.arange(num_queries)[:, None] - np.arange(num_keys)  # from a query to a token
    return (back >= 0) & (back < (window or num_keys))


def scores_of(q: np.ndarray, k: np.ndarray, softmax_scale: float, sees: np.ndarray, arithmetic: str) -> Scores:
    """q [B, H, T, D], k [B, G, S, D], sees [T, S] -> [B, H, T, S].

    A sum of D terms. For integers the codes are summed exactly in groups, except for the part of their minimum: both
    together are at most 3 times the largest magnitude of the token's key, as the span of a key is twice that at most.
    """
    q, k = q.astype(np.float64), by_head(k, q.shape[1])
    is_integer, head_dim = arithmetic == "int16", q.shape[3]
    terms = np.abs(q) @ magnitudes(k, is_integer).swapaxes(2, 3) * softmax_scale
    count = -(-head_dim // INTEGER_GROUP) * 2 if is_integer else head_dim
    value = np.where(sees, q @ k.swapaxes(2, 3) * softmax_scale, -np.inf)
    return Scores(value, np.where(sees, roundings(count + SCORE_FACTORS) * terms, 0.0))


@dataclass(frozen=True, slots=True)
class ChannelGroups:
    """How the first tokens of keys are encoded: scale * code + minimum for each channel of a group of tokens.

    scale, minimum  [B, G, n, D] float32 of n groups
    levels          largest code
    tokens          of a group
    """

    scale: np.ndarray
    minimum: np.ndarray
    levels: int
    tokens: int = 32


def channel_scores_of(
    q: np.ndarray, k: np.ndarray, softmax_scale: float, sees: np.ndarray, groups: ChannelGroups | None
) -> Scores:
    """`scores_of` for keys with scales per channel, and float16 ones after them. groups: None if no token is encoded

    The products of q and the scales of a group are rounded to 16 bits, each by half a 32767th of the largest. A code is
    multiplied with them, and the minima with q, so a product's magnitude is that of both.
    """
    num_heads, head_dim = q.shape[1], q.shape[3]
    query, magnitude = np.abs(q).astype(np.float64), np.abs(k).astype(np.float64)
    rounded = np.zeros((*q.shape[:3], k.shape[2]))
    if groups is not None:
        scale, minimum = (each.astype(np.float64).repeat(groups.tokens, 2) for each in (groups.scale, groups.minimum))
        encoded = scale.shape[2]
        magnitude[:, :, :encoded] = np.abs(minimum) + scale * groups.levels
        codes = by_head(np.rint((k[:, :, :encoded] - minimum) / scale), num_heads)
        reach = np.minimum(codes.sum(-1), LUCK * np.sqrt((codes**2).sum(-1)))  # [B, H, S]
        largest = np.max(query[:, :, :, None] * by_head(groups.scale, num_heads)[:, :, None], -1)  # [B, H, T, n]
        rounded[..., :encoded] = largest.repeat(groups.tokens, -1) / 65534 * (1 + 2.0**-10) * reach[:, :, None]
    terms = query @ by_head(magnitude, num_heads).swapaxes(2, 3)
    value = q.astype(np.float64) @ by_head(k, num_heads).swapaxes(2, 3) * softmax_scale
    error = (rounded + roundings(head_dim + SCORE_FACTORS) * terms) * softmax_scale
    return Scores(np.where(sees, value, -np.inf), np.where(sees, error, 0.0))


def weighted_bound(scores: Scores, v: np.ndarray, arithmetic: str = "fp32") -> np.ndarray:
    """Bound of sums of v [B, G, S, D] with the softmax of scores [B, H, T, S] as weights: [B, H, T, D]."""
    v = by_head(v, scores.value.shape[1])
    weights, share = weights_of(scores)
    rescales = rescales_of(scores)
    terms, out = np.abs(v), np.abs(weights @ v)
    bound = share @ terms + out * share.sum(-1, keepdims=True)
    count = v.shape[2] + 2 * rescales + SUM_FACTORS
    bound += roundings(count) * (weights @ magnitudes(v, arithmetic == "int16") + out)
    if arithmetic == "bf16":  # each weight, with its value's scale, to 8 bits
        bound += BF16_UNIT * np.minimum(weights @ terms, LUCK * np.sqrt(weights**2 @ terms**2))
    if arithmetic == "int16":
        bound += rounded_weights(weights, v)[..., None]
    return bound


def weights_of(scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    """The softmax of scores, and the error of each weight before it is divided by their sum: both [B, H, T, S]."""
    weights = np.exp(scores.value - scores.value.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    # A score is subtracted from another one, and differences of maxima add up to less than twice the largest.
    return weights, weights * np.expm1(scores.error + 4 * UNIT * largest_of(scores) + rescales_of(scores) * POWER)


def largest_of(scores: Scores) -> np.ndarray:
    """The largest magnitude of the scores of each query: [B, H, T, 1]."""
    return np.abs(np.where(np.isfinite(scores.value), scores.value, 0.0)).max(-1, keepdims=True)


def rescales_of(scores: Scores) -> int:
    """The most times that a sum over the tokens is scaled."""
    return 2 + scores.value.shape[3] // RESCALED_TOKENS


def lse_bound(scores: Scores) -> np.ndarray:
    """Error of the log of the sum of exp(scores): [B, H, T].

    The sum is off by the errors of its weights and by roundings; the maximum, the log and two constants are rounded.
    """
    num_keys = scores.value.shape[3]
    _, share = weights_of(scores)
    total = share.sum(-1) + roundings(num_keys + 2 * rescales_of(scores) + SUM_FACTORS)
    return -np.log1p(-total) + 4 * UNIT * (largest_of(scores)[..., 0] + np.log(num_keys) + 1)


def mass_bound(scores: Scores, num_kv_heads: int) -> np.ndarray:
    """Error of the weights' sums over queries and the heads of a group: [B, G, S].

    A weight is exp(score - lse), whether one pass or two find it; as the lse is rounded, once more by its own error.
    """
    batch, num_heads, num_queries, num_keys = scores.value.shape
    heads_per_kv = num_heads // num_kv_heads
    weights, share = weights_of(scores)
    shift = lse_bound(scores)[..., None] + 4 * UNIT * (largest_of(scores) + np.log(num_keys)) + 2 * POWER
    error = share + (weights + share) * np.expm1(shift) + roundings(heads_per_kv * num_queries + SUM_FACTORS) * weights
    error += SMALLEST * (weights > 0)
    return error.sum(2).reshape(batch, num_kv_heads, heads_per_kv, num_keys).sum(2)


def rounded_weights(weights: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The error by integer weights of 16 bits: [B, H, T].

    Weights with their values' scales are whole multiples of a 32767th of the largest of their chunk, so that each of a
    chunk's n tokens is off by half of that times its code: by the largest weight times span over 65534 at most.
    """
    lowest = v.min(-1)  # kept as a float16, which may be below the least value by 2^-11 of itself
    spans = v.max(-1) - lowest + 2.0**-11 * np.abs(lowest)  # [B, H, S]
    steps = weights * spans[:, :, None]
    padding = [(0, 0)] * 3 + [(0, -steps.shape[3] % ATTENTION_CHUNK_TOKENS)]
    chunks = np.pad(steps, padding).reshape(*steps.shape[:3], -1, ATTENTION_CHUNK_TOKENS)
    counts, largest = (chunks > 0).sum(-1), chunks.max(-1) / 65534  # [B, H, T, chunks]
    return np.minimum((counts * largest).sum(-1), LUCK * np.sqrt((counts * largest**2).sum(-1)))


def by_head(x: np.ndarray, num_heads: int) -> np.ndarray:
    """[B, G, S, D] -> [B, H, S, D] float64"""
    return np.repeat(x, num_heads // x.shape[1], 1).astype(np.float64)


def magnitudes(x: np.ndarray, is_integer: bool) -> np.ndarray:
    """Magnitudes of the terms for each number of x [B, H, S, D]."""
    return np.broadcast_to(3 * np.abs(x).max(-1, keepdims=True), x.shape) if is_integer else np.abs(x)
