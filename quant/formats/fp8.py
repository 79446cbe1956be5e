"""FP8: weights as 8-bit floats (E4M3), and inputs that may be rounded to the same."""

from collections.abc import Mapping
from types import ModuleType

import numpy as np

from quant.errors import InputError
from quant.formats.codes import SHORTEST_RUN, Codes
from quant.formats.int8 import SMALLEST_SCALE
from quant.formats.integer_format import ActivationFormat
from quant.formats.small_floats import E4M3_MAX, E4M3_VALUES, round_to_e4m3, to_e4m3
from quant.qtensor import QTensor

BLOCK = 128  # rows and columns of a weight, and input features of a token, that share a scale in fp8-block128
# Steps as wide as that between the two largest codes (448 and 416) over the whole range: for the share of codes at the
# ends, codes near 0 do not count.
STEPS_AT_THE_ENDS = 28
NAMES = {"per_token": "fp8-w8a8", "static": "fp8-w8a8-static", "per_group": "fp8-block128", "none": "fp8-w8a16"}


class Fp8Format(ActivationFormat):
    """weight = weight_scale * e4m3, and x ~= x_scale * x_e4m3: compressed-tensors' "float-quantized".

    name    fp8-w8a8          a scale per channel of the weight, and per token of the input as it comes
            fp8-w8a8-static   a scale per channel, and one scale for the inputs of all calls, found by calibration
            fp8-w8a16         a scale per channel; inputs are not rounded
            fp8-block128      a scale per 128 rows and 128 columns of the weight, and per 128 features of a token
    parts   weight            [N, K] uint8      bytes of E4M3
            weight_scale      [N, 1] float32, > 0; [N, K / 128] in fp8-block128, the same in all rows of a block
    shared  input_scale       [1] float32       static activations alone

    scale = absmax / 448, codes = round(value / scale) to even.
    source  Micikevicius et al. 2022, arXiv:2209.05433; DeepSeek-V3, arXiv:2412.19437, section 3.3.2
    """

    def __init__(self, inputs: str) -> None:
        self.inputs = inputs  # "per_token", "static", "per_group" or "none"
        self.name = NAMES[inputs]
        self.by_block = inputs == "per_group"
        self.block_size = BLOCK if self.by_block else 1
        self.rows_stand_alone = not self.by_block
        self.has_input_scale = inputs == "per_token"
        self.static_inputs = inputs == "static"

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Codes and scales, which are one per channel, or one per row and 128 columns. A file has a 128th of these."""
        self.check_shape(shape)
        return shape[0] * (shape[1] + 4 * (shape[1] // BLOCK if self.by_block else 1))

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        return self.quantize_ref(weight)

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_shape(weight.shape)
        self._check_values(weight)
        weight = np.ascontiguousarray(weight, dtype=np.float32)
        scale = scale_of(self._absmax(weight))
        codes = to_e4m3(weight / self._spread(scale))
        return QTensor(self.name, weight.shape, {"weight": codes, "weight_scale": scale})

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        self.check_shape(qtensor.shape)
        return E4M3_VALUES[qtensor.parts["weight"]] * self._spread(qtensor.parts["weight_scale"])

    def weight_codes(self, qtensor: QTensor) -> Codes:
        level = E4M3_VALUES[qtensor.parts["weight"]]
        scale = np.broadcast_to(self._spread(qtensor.parts["weight_scale"]), level.shape)
        run = BLOCK if self.by_block else max(level.shape[1], SHORTEST_RUN)
        return Codes(level, np.abs(level) == E4M3_MAX, scale, STEPS_AT_THE_ENDS, run, signed=False)

    def take_columns(self, qtensor: QTensor, columns: slice) -> QTensor:
        part = super().take_columns(qtensor, columns)
        if self.by_block:
            of_blocks = slice(columns.start // BLOCK, columns.stop // BLOCK)
            part.parts["weight_scale"] = np.ascontiguousarray(qtensor.parts["weight_scale"][:, of_blocks])
        return part

    def add_zero_column(self, qtensor: QTensor) -> QTensor:
        if self.by_block:
            raise InputError(f"{self.name} cannot be cut by input features over ranks; use fp8-w8a8")
        return super().add_zero_column(qtensor)

    def _round(self, kernels: ModuleType, weight: np.ndarray) -> dict[str, np.ndarray]:
        return self.quantize_ref(weight).parts

    def _check_values(self, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            raise InputError(f"{self.name} holds finite weights, got NaN or inf; check the source")

    def _absmax(self, weight: np.ndarray) -> np.ndarray:
        """[N, 1] or [N, K / 128] float32"""
        if not self.by_block:
            return np.abs(weight).max(axis=1, keepdims=True)
        of_groups = np.abs(weight).reshape(len(weight), -1, BLOCK).max(axis=2)  # [N, K / 128]
        of_blocks = np.maximum.reduceat(of_groups, np.arange(0, len(weight), BLOCK), axis=0)
        return np.repeat(of_blocks, BLOCK, axis=0)[: len(weight)]

    def _spread(self, scale: np.ndarray) -> np.ndarray:
        """The scale of each weight: [N, K], or [N, 1] for all of a row"""
        return np.repeat(scale, BLOCK, axis=1) if self.by_block else scale

    def scale_of_absmax(self, absmax: np.ndarray) -> np.ndarray:
        return scale_of(absmax)

    def input_absmax(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.abs(x).max(axis=1, keepdims=True, initial=0)

    def input_codes(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """x [M, K] float32 -> (values of E4M3 [M, K] float32, the scale of each: as `input_scale`); not for "none" """
        scale = self.input_scale(x, shared)
        return round_to_e4m3(x / scale), scale

    def input_scale(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        """x [M, K] float32 -> x_scale of each value, [M, 1], [1, 1] or [M, K] float32, where inputs are rounded

        raises   InputError for static activations without their scale
        """
        if self.static_inputs:
            if "input_scale" not in shared:
                raise InputError(f"{self.name} needs an input_scale, got none; use a method that calibrates: static")
            return shared["input_scale"].reshape(1, 1)
        if not self.by_block:
            return scale_of(self.input_absmax(x, shared))
        of_groups = np.abs(x).reshape(len(x), -1, BLOCK).max(axis=2, initial=0)
        return np.repeat(scale_of(of_groups), BLOCK, axis=1)

    def fake_quantize_input(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        if self.inputs == "none":
            return x
        codes, scale = self.input_codes(x, shared)
        return codes * scale


def scale_of(absmax: np.ndarray) -> np.ndarray:
    """float32 -> float32 above 0; NaN stays NaN, and so do quotients by it."""
    return np.maximum(absmax / E4M3_MAX, SMALLEST_SCALE).astype(np.float32)


FP8_FORMATS = {fmt.name: fmt for fmt in map(Fp8Format, NAMES)}
