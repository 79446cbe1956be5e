"""Attention over latents that all heads share, at the shape of DeepSeek-V2-Lite: one decoded token far into a text."""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil

import numpy as np

from cpu_kernels.attention import attend_latents
from qbench.kernels.attention import LATENT_SIZE, ROPE_SIZE, kept_latents
from qbench.kernels.attention_benchmarks import DEPTH, ROUNDING, SHARPNESS
from qbench.kernels.benchmark import OURS, Benchmark, Contender
from qbench.kernels.case import Deviation, deviation
from qbench.kernels.linear_benchmarks import COLD_BYTES
from qbench.speed.units import BF16, FP32

LATENTS = "latents_"  # before the format, in the names of ops
NUM_HEADS = 16
SEED = 33


class LatentInputs:
    """Queries of one token that all look for the latent in the middle of the text, which is their expected output.

    q          [H, 576] float32
    latents    [S, 576] float32; kept: the same in the format, as attend_latents takes them
    """

    def __init__(self, name: str, num_tokens: int) -> None:
        rng = np.random.default_rng(SEED)
        self.name, self.sought = name, num_tokens // 2
        self.latents = rng.standard_normal((num_tokens, LATENT_SIZE + ROPE_SIZE)).astype(np.float32)
        self.kept, _ = kept_latents(name, self.latents)
        # The sought latent's score is 4 * |latent|**2 / 24, about 96. Others' deviate by 4, so its weight is 1.
        self.q = np.repeat(SHARPNESS * self.latents[[self.sought]], NUM_HEADS, axis=0)
        self.softmax_scale = (LATENT_SIZE + ROPE_SIZE) ** -0.5

    def check(self, out: np.ndarray) -> Deviation:
        """As Attention.check: within the format's rounding of the largest values, of 4."""
        expected = np.broadcast_to(self.latents[self.sought, :LATENT_SIZE], out.shape)
        return deviation(out, expected, ROUNDING * 4)


class OurLatents:
    """attend_latents, each call over its own copy of the text, one page long."""

    def __init__(self, inputs: LatentInputs, copies: int) -> None:
        self.inputs, self.q = inputs, inputs.q[None]
        self.texts = [inputs.kept[None].copy() for _ in range(copies)]
        self.table, self.ends = np.zeros((1, 1), np.int32), np.array([len(inputs.latents)])
        self.out = np.full((1, NUM_HEADS, LATENT_SIZE), np.nan, np.float32)
        self.how = ""

    def run(self) -> None:
        for text in self.texts:
            given = self.q, self.inputs.name, text, self.table, self.ends, self.out
            self.how = attend_latents(*given, self.inputs.softmax_scale)

    def output(self) -> np.ndarray:
        return self.out[0]


def latent_benchmarks(name: str, tokens: tuple[int, ...]) -> Iterator[Benchmark]:
    """Decode of one token at DEPTH, if `tokens` has 1: a prompt is computed without latents."""
    if 1 not in tokens:
        return
    inputs = LatentInputs(name, DEPTH)
    copies = ceil(COLD_BYTES / inputs.kept.nbytes)
    contenders: dict[str, Callable[[], Contender]] = {OURS: lambda: OurLatents(inputs, copies)}
    for dtype in ("float32", "bfloat16"):
        contenders[f"torch-{dtype}"] = partial(torch_latents, dtype, inputs, copies)
    yield Benchmark(
        op=LATENTS + name,
        shape=f"{NUM_HEADS}x{LATENT_SIZE + ROPE_SIZE}@{DEPTH}",
        tokens=1,
        contenders=contenders,
        calls=copies,
        moved_bytes=inputs.kept.nbytes + 4 * NUM_HEADS * (2 * LATENT_SIZE + ROPE_SIZE),
        operations=2 * NUM_HEADS * DEPTH * (2 * LATENT_SIZE + ROPE_SIZE),
        arithmetic=FP32 if name == "f32" else BF16,
        check=inputs.check,
    )


def torch_latents(dtype: str, inputs: LatentInputs, copies: int) -> Contender:
    import torch

    from qbench.kernels.peers.torch import TorchLatents

    return TorchLatents(getattr(torch, dtype), inputs.q, inputs.latents, LATENT_SIZE, inputs.softmax_scale, copies)
