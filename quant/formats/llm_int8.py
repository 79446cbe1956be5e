"""LLM.int8(): int8 weights and activations, with the input features that hold outliers kept in floats."""

from collections.abc import Mapping
from types import ModuleType

import numpy as np

from quant.errors import InputError
from quant.formats.bits import HALF_MAX
from quant.formats.codes import Codes, codes_of_int8
from quant.formats.integer_format import ActivationFormat
from quant.qtensor import QTensor

OUTLIER_THRESHOLD = 6.0  # the paper's, at which all of a large model's outlier features are caught (section 3.2)
QMAX = np.float32(127)
PER_CODE = np.float32(1 / 127)  # bitsandbytes multiplies by the rounded reciprocal
NO_FEATURES = np.empty(0, dtype=np.int32)


class LlmInt8Format(ActivationFormat):
    """weight = q * SCB / 127, one SCB (absmax) per channel, as bitsandbytes stores it.

    parts   weight             [N, K] int8
            SCB                [N] float32     absmax of each row
            outlier_weight     [N, F] float16  the weights of outlier features, where calibration found some
    shared  outlier_features   [F] int32       which those are: they meet no int8, whatever a call's inputs are

    Without outlier_weight, codes and outputs are those of bitsandbytes, weights and the activations' int8 part being
    rounded to float16 first. Outliers then meet the values of int8 codes, as do those here that calibration did not
    find. That approximation of the paper, *outlier weights on their row's grid*, is such a model's error beyond W8A8's:
    training makes the weights of a loud feature small, here as small as a fifth of the step that the row's largest
    weight gives, and most of them become 0. On ref:llama-outliers it is all but a hundredth of the divergence, and a
    scale of the feature's own would do away with it as float16 does (tests/quant/methods/
    test_outliers_of_reference.py). The paper's float16 weights need the features known before the weights are stored.
    source  Dettmers et al. 2022, LLM.int8(), arXiv:2208.07339, sections 3.1 (vector-wise) and 3.2 (decomposition)
    """

    name = "llm-int8"

    def _round(self, kernels: ModuleType, weight: np.ndarray) -> dict[str, np.ndarray]:
        q, absmax = kernels.quantize_llm_int8(weight)
        return {"weight": q, "SCB": absmax}

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_shape(weight.shape)
        self._check_values(weight)
        half = weight.astype(np.float16).astype(np.float32)
        q, absmax = absmax_codes(half)
        return QTensor(self.name, weight.shape, {"weight": q, "SCB": absmax})

    def _check_values(self, values: np.ndarray) -> None:
        absmax = np.maximum(values.max(axis=1), -values.min(axis=1))  # [N]
        if not (absmax <= HALF_MAX).all():
            raise InputError(f"{self.name} holds weights of magnitudes up to {HALF_MAX:.0f}, got {absmax.max():.6g}")

    def with_outliers(self, qtensor: QTensor, weight: np.ndarray, features: np.ndarray) -> QTensor:
        """The tensor of `weight` [N, K] with float16 columns for `features` [F] int32, ascending."""
        if not len(features):
            return qtensor
        parts = {**qtensor.parts, "outlier_weight": weight[:, features].astype(np.float16)}
        return QTensor(qtensor.format, qtensor.shape, parts, {"outlier_features": features.astype(np.int32)})

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        self.check_shape(qtensor.shape)
        weight = qtensor.parts["weight"].astype(np.float32) * qtensor.parts["SCB"][:, None] * PER_CODE
        if "outlier_features" in qtensor.shared:
            weight[:, qtensor.shared["outlier_features"]] = qtensor.parts["outlier_weight"]
        return weight

    def weight_codes(self, qtensor: QTensor) -> Codes:
        return codes_of_int8(qtensor.parts["weight"], qtensor.parts["SCB"][:, None] * PER_CODE)

    def take_columns(self, qtensor: QTensor, columns: slice) -> QTensor:
        cut = super().take_columns(qtensor, columns)
        known = qtensor.shared.get("outlier_features", NO_FEATURES)
        inside = (known >= columns.start) & (known < columns.stop)
        parts = {name: part for name, part in cut.parts.items() if name != "outlier_weight"}
        if not inside.any():
            return QTensor(self.name, cut.shape, parts)
        parts["outlier_weight"] = np.ascontiguousarray(qtensor.parts["outlier_weight"][:, inside])
        return QTensor(self.name, cut.shape, parts, {"outlier_features": known[inside] - np.int32(columns.start)})

    def input_absmax(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        _, inliers = _split(x, shared)
        return np.abs(inliers).max(axis=1, keepdims=True, initial=0)

    def fake_quantize_input(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        outlier, inliers = _split(x, shared)
        q, absmax = absmax_codes(inliers)
        return np.where(outlier, x, q.astype(np.float32) * absmax[:, None] * PER_CODE)


def _split(x: np.ndarray, shared: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """`split_outliers`, with the features that calibration found among the outliers and 0 among the inliers."""
    known = shared.get("outlier_features", NO_FEATURES)
    rest = x.copy()
    rest[:, known] = 0
    outlier, inliers = split_outliers(rest)
    outlier[known] = True
    return outlier, inliers


def split_outliers(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which features some token of the call takes to the threshold or past it, and all features below it.

    x         [M, K] float32
    returns   outlier [K] bool; inliers [M, K] float32, rounded to float16, 0 in place of the outliers themselves:
              an outlier feature's smaller values still count for a token's absmax, as in bitsandbytes
    """
    with np.errstate(over="ignore"):  # beyond float16 is inf, an outlier
        half = x.astype(np.float16).astype(np.float32)
    outliers = np.abs(half) >= OUTLIER_THRESHOLD
    return np.any(outliers, axis=0), np.where(outliers, 0, half)


def absmax_codes(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """rows [M, K] float32 -> q [M, K] int8 = round(x * (127 / absmax)), absmax [M] float32; a row of zeros has q = 0"""
    absmax = np.abs(rows).max(axis=1, initial=0)
    # torch divides a number by a tensor as reciprocal times number, and bitsandbytes' codes follow from that.
    per_unit = np.divide(np.float32(1), absmax, out=np.zeros_like(absmax), where=absmax != 0) * QMAX
    return np.nan_to_num(np.rint(rows * per_unit[:, None])).astype(np.int8), absmax
