"""RoPE between its two homes: Hugging Face config keys and rotated halves, GGUF metadata and rotated pairs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Rope:
    """theta, and scaling as the dict of `rope_scaling` with its `rope_type`, or None."""

    theta: float
    scaling: Mapping[str, Any] | None


# rope_type -> the keys it needs
SCALING_KEYS: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


def rope_of(config: Mapping[str, Any], where: str) -> Rope:
    """RoPE from either spelling: `rope_parameters`, or `rope_theta` with `rope_scaling`.

    raises   InputError for an unknown rope_type or a missing or non-positive number
    """
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(scaling, Mapping):
        raise InputError(f"{where}: rope_parameters or rope_scaling must be an object, got {scaling!r}")
    theta = _positive(scaling.get("rope_theta") or config.get("rope_theta") or 10000.0, "rope_theta", where)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return Rope(theta, None)
    if kind not in SCALING_KEYS:
        raise InputError(f"{where}: rope_type {kind!r} is not supported; known: default, {', '.join(SCALING_KEYS)}")
    numbers = {key: _positive(scaling.get(key), key, where) for key in SCALING_KEYS[kind]}
    if kind == "llama3" and numbers["high_freq_factor"] <= numbers["low_freq_factor"]:
        raise InputError(f"{where}: high_freq_factor must be above low_freq_factor, got {numbers}")
    return Rope(theta, {"rope_type": kind, **numbers})


def llama3_factors(rope: Rope, head_dim: int) -> np.ndarray:
    """What each frequency is divided by, as GGUF keeps it in `rope_freqs.weight`.

    returns  [head_dim // 2] float32: 1 for short waves, `factor` for long ones, a blend between
    source   Llama 3.1's published scaling rule
    """
    scaling = rope.scaling
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelength = 2 * math.pi * rope.theta ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    turns = scaling["original_max_position_embeddings"] / wavelength  # within the context it was trained on
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)  # 0: scaled in full, 1: left alone
    return (1 / (keep + (1 - keep) / scaling["factor"])).astype(np.float32)


def llama3_scaling(factors: np.ndarray, theta: float, original_context: int | None, where: str) -> dict[str, Any]:
    """The `rope_scaling` whose factors are these; the inverse of `llama3_factors`, checked by computing them again.

    GGUF does not keep the parameters. Published models all use low 1 and high 4; the context they were
    trained on is 8192 unless the file says otherwise.
    raises   InputError if no such scaling gives these factors
    """
    for original in dict.fromkeys((original_context or 8192, 8192)):
        scaling = {
            "rope_type": "llama3",
            "factor": float(factors.max()),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": original,
        }
        with np.errstate(all="ignore"):  # a corrupt file's numbers; what they give matches nothing
            again = llama3_factors(Rope(theta, scaling), 2 * len(factors))
        # The converter of others computes in float32: a few roundings of 2**-24 through pow and a quotient.
        if np.allclose(again, factors, rtol=2**-16, atol=0):
            return scaling
    raise InputError(f"{where}: tensor rope_freqs.weight holds factors that no llama3 scaling gives")


def rows_to_pairs(num_rows: int, num_heads: int) -> np.ndarray:
    """Row order for GGUF: within each head, row i and row i + head_dim / 2 become neighbours.

    Hugging Face turns (x[i], x[i + head_dim / 2]) together; llama.cpp turns (x[2i], x[2i + 1]).
    returns  [num_rows] int64, index for `QTensor.take_rows`
    """
    return np.arange(num_rows).reshape(num_heads, 2, -1).swapaxes(1, 2).reshape(-1)


def rows_to_halves(num_rows: int, num_heads: int) -> np.ndarray:
    """The inverse of `rows_to_pairs`."""
    return np.argsort(rows_to_pairs(num_rows, num_heads))


def _positive(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"{where}: RoPE key {key!r} must be a number above 0, got {value!r}")
    return value
