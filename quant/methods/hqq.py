"""HQQ: half-quadratic quantization, which fits the zero point of each group to its weights and needs no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from quant.errors import InputError
from quant.formats import Format, get_format
from quant.formats.bits import half_bytes, to_half
from quant.formats.grid import Grid
from quant.formats.legacy_min import HalfAffineFormat
from quant.late import LateModule
from quant.methods.base import Layer, Method
from quant.qtensor import QTensor
from quant.stats import InputStats

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

FLOATS = ("f32", "f16", "bf16")
NORM = 0.7  # of the errors: |error|^0.7, so that few large errors count for little
FIRST_BETA, BETA_GROWTH = 10.0, 1.01
SMALLEST_RANGE = 1e-4  # of a group; below it the scale is 1
LARGEST_SCALE = 2e4


@dataclass(frozen=True, slots=True)
class Hqq(Method):
    """group_size   weights that share a scale and a zero point, a multiple of a block's 32
    iterations   most rounds; a round that does not lower the mean error of the tensor is the last one

    Scales span each group's weights. Rounds take turns between errors, shrunk by the proximal operator of |e|^0.7, and
    zero points, the mean of the rest after the codes. Zero points have fractions, so a format needs minimums.

    source  Badri and Shaji 2023, "Half-Quadratic Quantization of Large Machine Learning Models"; mobiusml/hqq,
            optimize_weights_proximal_legacy
    """

    group_size: int = 64
    iterations: int = 20

    name: ClassVar[str] = "hqq"
    paper: ClassVar[str | None] = "https://mobiusml.github.io/hqq_blog"
    rows_stand_alone: ClassVar[bool] = False  # the mean error of all rows ends the rounds

    def __post_init__(self) -> None:
        for option in ("group_size", "iterations"):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"hqq: {option} is {value!r}, expected a whole number above 0")
        if self.group_size % HalfAffineFormat.block_size:
            raise InputError(
                f"hqq: group_size is {self.group_size}, expected a multiple of {HalfAffineFormat.block_size}"
            )

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        """Every weight of the layer in its format; `stats` is not looked at."""
        return {name: self._quantize(weight, get_format(layer.formats[name])) for name, weight in layer.weights.items()}

    def check_format(self, fmt: Format, row_size: int) -> None:
        if not isinstance(fmt, HalfAffineFormat):
            raise InputError(f"hqq fits zero points with fractions, which {fmt.name} does not hold; use q4_1 or q5_1")
        if row_size % self.group_size:
            raise InputError(f"hqq needs rows of a multiple of group_size {self.group_size}, got {row_size}")

    def _quantize(self, weight: np.ndarray, fmt: Format) -> QTensor:
        if fmt.name in FLOATS:
            return fmt.quantize(weight)
        self.check_format(fmt, weight.shape[-1])
        assert isinstance(fmt, HalfAffineFormat)
        if not np.isfinite(weight).all():
            raise InputError("hqq needs finite weights, got NaN or inf; check the source")
        groups = np.ascontiguousarray(weight, dtype=np.float32).reshape(-1, self.group_size)
        scale, zero = fit_groups(groups, fmt.qmax, self.iterations)
        d, m = to_half(1 / scale), to_half(-zero / scale)  # [G, 1]
        stored_d, stored_m = d.astype(np.float32), m.astype(np.float32)
        q = np.clip(np.rint((groups - stored_m) / stored_d), 0, fmt.qmax).astype(np.uint8)
        per_group = self.group_size // fmt.block_size
        header = np.repeat(np.concatenate([half_bytes(d[:, 0]), half_bytes(m[:, 0])], axis=1), per_group, axis=0)
        grid = Grid(stored_d, stored_m, 0, fmt.qmax, header)
        blocks = fmt.pack_grid(grid, q.reshape(-1, fmt.block_size))
        return QTensor(fmt.name, weight.shape, {"blocks": blocks.reshape(*weight.shape[:-1], -1)})


def fit_groups(groups: np.ndarray, qmax: int, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """groups [G, S] float32 -> scale and zero [G, 1] float32: code = round(weight * scale + zero) in 0..qmax"""
    weight = torch.from_numpy(groups)
    lowest, highest = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    span = highest - lowest
    scale = torch.where(span <= SMALLEST_RANGE, torch.ones_like(span), qmax / span).clamp(max=LARGEST_SCALE)
    zero, beta, least = -lowest * scale, FIRST_BETA, float("inf")
    for _ in range(iterations):
        q = (weight * scale + zero).round_().clamp_(0, qmax)
        error = weight - (q - zero) / scale
        mean = float(error.abs().mean())
        zero = (q - (weight - _shrunk(error, beta)) * scale).mean(1, keepdim=True)
        if mean >= least:
            break
        least, beta = mean, beta * BETA_GROWTH
    return scale.numpy(), zero.numpy()


def _shrunk(error: Tensor, beta: float) -> Tensor:
    """The proximal operator: sign(e) max(|e| - |e|^(p - 1) / beta, 0); 0 at 0"""
    size = error.abs()
    return (size - size.pow(NORM - 1) / beta).clamp_(min=0) * error.sign()
