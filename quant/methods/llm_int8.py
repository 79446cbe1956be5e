"""LLM.int8() with the outlier features' weights in float16, as the paper has them: calibration finds the features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quant.formats import LlmInt8Format, get_format
from quant.formats.llm_int8 import OUTLIER_THRESHOLD
from quant.methods.base import Layer, Method
from quant.present import present
from quant.qtensor import QTensor
from quant.stats import InputStats


@dataclass(frozen=True, slots=True)
class LlmInt8(Method):
    """Formats other than llm-int8 are rounded to nearest.

    This is the paper's scheme, for the features that calibration saw as outliers: the tensors that bitsandbytes loads,
    and their float16 weights, which bitsandbytes does not read. Method rtn stores the first part alone and needs no
    calibration, as in bitsandbytes and in recipes named llm-int8.

    source   Dettmers et al. 2022, arXiv:2208.07339, eq. 8: X^h W^h of h in O are both 16-bit
    """

    name: ClassVar[str] = "llm-int8"
    paper: ClassVar[str | None] = "arXiv:2208.07339"
    needs: ClassVar[frozenset[str]] = frozenset({"absmax"})

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        made = {}
        for name, weight in layer.weights.items():
            fmt = get_format(layer.formats[name])
            made[name] = fmt.quantize(weight)
            if isinstance(fmt, LlmInt8Format):
                made[name] = fmt.with_outliers(made[name], weight, outlier_features(present(stats[name].absmax)))
        return made


def outlier_features(absmax: np.ndarray) -> np.ndarray:
    """[K] float32 -> [F] int32: those that the linear itself would take for outliers, rounded to float16 as there"""
    with np.errstate(over="ignore"):
        half = absmax.astype(np.float16).astype(np.float32)
    return np.flatnonzero(half >= OUTLIER_THRESHOLD).astype(np.int32)
