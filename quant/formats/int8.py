"""W8A8: int8 weights, and int8 activations that they are multiplied with."""

import re
from collections.abc import Mapping
from types import ModuleType

import numpy as np

from quant.errors import InputError
from quant.formats.base import CHUNK_WEIGHTS
from quant.formats.codes import Codes, codes_of_int8
from quant.formats.integer_format import ActivationFormat, integer_kernels
from quant.qtensor import QTensor

QMIN, QMAX = -128, 127  # -128 appears where a static scale is too small for an activation, and in others' files
SMALLEST_SCALE = np.float32(2.0**-126)  # smallest normal float32: zeros divide safely by it
NAME = re.compile(r"w8a8(-wtensor)?(-atensor|-astatic)?")
SUFFIX_OF_INPUTS = {"per_token": "", "per_tensor": "-atensor", "static": "-astatic"}


class Int8Format(ActivationFormat):
    """weight = weight_scale * q, and x ~= x_scale * x_q, both symmetric: compressed-tensors' "int-quantized".

    name    w8a8             a scale per channel of the weight, and per token of the input as it comes
            w8a8-wtensor     one scale for the whole weight
            w8a8-atensor     one scale for all tokens of a call
            w8a8-astatic     one scale for all calls, found by calibration; both suffixes combine: -wtensor-astatic
    parts   weight           [N, K] int8
            weight_scale     [N, 1] float32, > 0     the same in every row if it is per tensor
    shared  input_scale      [1] float32             static activations alone

    scale = absmax / 127 for weights and activations, as in the paper, x_q = round(x / x_scale) to even.
    source  Xiao et al. 2022, SmoothQuant, arXiv:2211.10438, eq. 1 and table 2 (O1: per token, O2: per tensor,
            O3: static)
    """

    def __init__(self, per_tensor_weight: bool = False, inputs: str = "per_token") -> None:
        self.per_tensor_weight = per_tensor_weight
        self.inputs = inputs  # "per_token", "per_tensor" or "static"
        self.rows_stand_alone = not per_tensor_weight
        self.has_input_scale = inputs != "static"
        self.static_inputs = inputs == "static"
        self.name = "w8a8" + ("-wtensor" if per_tensor_weight else "") + SUFFIX_OF_INPUTS[inputs]

    @classmethod
    def parse(cls, name: str) -> "Int8Format | None":
        """The format that a name like "w8a8-astatic" means; None for other names."""
        match = NAME.fullmatch(name)
        if match is None:
            return None
        inputs = next(inputs for inputs, suffix in SUFFIX_OF_INPUTS.items() if suffix == (match[2] or ""))
        return cls(match[1] is not None, inputs)

    def _round(self, kernels: ModuleType, weight: np.ndarray) -> dict[str, np.ndarray]:
        q, scale = kernels.quantize_rows(weight, self.per_tensor_weight)
        return {"weight": q, "weight_scale": scale}

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_shape(weight.shape)
        absmax = np.maximum(weight.max(axis=1, keepdims=True), -weight.min(axis=1, keepdims=True))  # [N, 1]
        self._check_values(absmax)
        if self.per_tensor_weight:
            absmax = np.full_like(absmax, absmax.max())
        scale = scale_of(absmax)
        q = np.empty(weight.shape, dtype=np.int8)
        for rows in _row_chunks(weight.shape):
            q[rows] = codes_of(weight[rows], scale[rows])
        return QTensor(self.name, weight.shape, {"weight": q, "weight_scale": scale})

    def dequantize(self, qtensor: QTensor) -> np.ndarray:
        kernels = integer_kernels()
        if kernels is None:
            return self.dequantize_ref(qtensor)
        self.check_shape(qtensor.shape)
        parts = (np.ascontiguousarray(qtensor.parts[name]) for name in ("weight", "weight_scale"))
        return kernels.dequantize_rows(*parts)

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        self.check_shape(qtensor.shape)
        return qtensor.parts["weight_scale"] * qtensor.parts["weight"].astype(np.float32)

    def weight_codes(self, qtensor: QTensor) -> Codes:
        return codes_of_int8(qtensor.parts["weight"], qtensor.parts["weight_scale"])

    def _check_values(self, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            raise InputError(f"{self.name} holds finite weights, got NaN or inf; check the source")

    def scale_of_absmax(self, absmax: np.ndarray) -> np.ndarray:
        return scale_of(absmax)

    def input_scale(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        """x [M, K] float32 -> x_scale [M, 1] or [1, 1] float32.

        raises   InputError for static activations without their scale
        """
        if self.inputs == "static":
            if "input_scale" not in shared:
                raise InputError(
                    f"{self.name} needs an input_scale, got none; use a method that calibrates: smoothquant"
                )
            return shared["input_scale"].reshape(1, 1)
        axis = 1 if self.inputs == "per_token" else None
        return scale_of(np.abs(x).max(axis=axis, keepdims=True, initial=0))

    def input_absmax(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        absmax = np.abs(x).max(axis=1, keepdims=True, initial=0)
        return absmax if self.inputs == "per_token" else np.full_like(absmax, absmax.max(initial=0))

    def fake_quantize_input(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        scale = self.input_scale(x, shared)
        return np.clip(np.rint(x / scale), QMIN, QMAX) * scale


def scale_of(absmax: np.ndarray) -> np.ndarray:
    """float32 -> float32 above 0; NaN stays NaN, and so do quotients by it."""
    return np.maximum(absmax / np.float32(QMAX), SMALLEST_SCALE).astype(np.float32)


def codes_of(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """values [N, K] float32, finite; scale [N, 1] or [1, 1] -> int8"""
    return np.clip(np.rint(values / scale), QMIN, QMAX).astype(np.int8)


def _row_chunks(shape: tuple[int, int]) -> list[slice]:
    step = max(1, CHUNK_WEIGHTS // shape[1])
    return [slice(start, start + step) for start in range(0, shape[0], step)]


INT8_FORMATS = tuple(Int8Format(wtensor, inputs) for wtensor in (False, True) for inputs in SUFFIX_OF_INPUTS)
