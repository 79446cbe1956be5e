"""Latent attention's products of each head, and a whole step of it from projections to values."""

from collections.abc import Iterator

import numpy as np

from cpu_kernels.linear_float import round_to_bf16_ref
from cpu_kernels.mla import (
    MlaHeads,
    MlaStep,
    absorb_ref,
    latent_row_ref,
    mla_step_ref,
    round_heads_ref,
    values_of_ref,
)
from cpu_kernels.mla_bound import ROTATION, mla_step_bound, product_bound
from qbench.kernels.case import Deviation, Kernel, Problem, deviation
from qbench.kernels.fused_steps import at_most

HEADS, NOPE, ROPE, VALUE, RANK = 3, 63, 16, 65, 131
STEP_RANK = 128  # attention over latents takes multiples of 64
TOKENS = (1, 3, 63)
EPS, SOFTMAX_SCALE = 1e-6, (STEP_RANK + ROPE) ** -0.5
UNIT = 2.0**-24  # of a rounding in float32, relative
SEED = 41


def mla_heads() -> list[Kernel]:
    return [Kernel("mla_heads", problems)]


def problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED)
    keys = rng.standard_normal((HEADS, NOPE, RANK)).astype(np.float32) / np.float32(NOPE**0.5)  # so that scores are ~1
    values = rng.standard_normal((HEADS, VALUE, RANK)).astype(np.float32)
    for name in ("f32", "f16", "bf16", "int8"):
        heads, kept = MlaHeads(keys, values, name), (rounded(keys, name, 1), rounded(values, name, 2))
        for num_tokens in TOKENS:
            q = rng.standard_normal((num_tokens, HEADS, NOPE)).astype(np.float32)
            latents = rng.standard_normal((num_tokens, HEADS, RANK)).astype(np.float32)
            about = f"{name}, {num_tokens} tokens"
            yield product(f"absorbed queries, {about}", heads, heads.absorb, q, kept[0], absorb_ref)
            yield product(f"values, {about}", heads, heads.values_of, latents, kept[1], values_of_ref)
    yield step(rounded(keys[..., :STEP_RANK], "f16", 1), rounded(values[..., :STEP_RANK], "f16", 1), rng)


def product(label: str, heads: MlaHeads, multiply, x: np.ndarray, weight: np.ndarray, definition) -> Problem:
    """x [M, H, K]"""

    def run(isa: str) -> tuple[np.ndarray, str]:
        return multiply(x.reshape(len(x), -1), isa=isa).reshape(len(x), HEADS, -1), heads.last_isa

    def check(out: np.ndarray) -> Deviation:
        return deviation(out, definition(x, weight), product_bound(definition, x, weight))

    return Problem(label, run, check)


def step(keys: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> Problem:
    """19 tokens at once, into two empty pages of float32 rows; the call takes no instruction set.

    The result holds their outputs, then their rows; outputs must follow from the rows.
    """
    heads, count, rank = MlaHeads(keys, values, "f16"), 19, STEP_RANK
    q = rng.standard_normal((count, HEADS, NOPE + ROPE)).astype(np.float32)
    latent = rng.standard_normal((count, rank + ROPE)).astype(np.float32)
    norm = rng.standard_normal(rank).astype(np.float32)
    turns = np.outer(np.arange(count), 10000.0 ** (-np.arange(0, ROPE, 2) / ROPE))
    cos = np.concatenate((np.cos(turns), np.cos(turns)), 1).astype(np.float32)
    sin = np.concatenate((-np.sin(turns), np.sin(turns)), 1).astype(np.float32)
    table, ends = np.tile(np.array([[1, 0]], np.int32), (count, 1)), np.arange(1, count + 1)

    def run(isa: str) -> tuple[np.ndarray, str]:
        rows = np.full((2, 16, rank + ROPE), np.nan, np.float32)
        with at_most(isa):
            about = (norm, EPS, cos, sin, "f32", rows, table, ends, SOFTMAX_SCALE)
            out = heads.attend(q.reshape(count, -1), latent, *about)
        stored = rows[[1, 0]].reshape(-1, rank + ROPE)[:count]
        return np.concatenate((out.ravel(), stored.ravel())), heads.last_isa

    def check(result: np.ndarray) -> Deviation:
        """Normalized rows are equal; the rotated end is rounded once more in the definition."""
        rows = latent_row_ref(latent, norm, EPS, cos, sin)
        off = np.zeros_like(rows, np.float64)
        off[:, rank:] = (ROTATION + UNIT) * latent_row_ref(np.abs(latent), norm, EPS, np.abs(cos), np.abs(sin))[
            :, rank:
        ]
        stored = result[-rows.size :].reshape(rows.shape)
        given = MlaStep(q, stored, (keys, values), (cos, sin), SOFTMAX_SCALE)
        expected = np.concatenate((mla_step_ref(given).ravel(), rows.ravel()))
        return deviation(result, expected, np.concatenate((mla_step_bound(given).ravel(), off.ravel())))

    return Problem(f"a step, f16 heads, f32 rows, {count} tokens", run, check)


def rounded(weight: np.ndarray, name: str, axis: int) -> np.ndarray:
    """As the format keeps it; axis: of its inputs."""
    if name == "int8":
        return round_heads_ref(weight, axis)
    if name == "bf16":
        return round_to_bf16_ref(weight)
    return weight.astype(np.float16 if name == "f16" else np.float32).astype(np.float32)
