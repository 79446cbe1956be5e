"""Common code of the layouts with 8 bits per weight in compressed-tensors: integers and floats."""

import numpy as np

from quant.artifacts.layouts.base import Part, StoredModule, tensor_info
from quant.errors import InputError
from quant.formats import ActivationFormat
from quant.source import SharedInfo, TensorInfo

SCALE_DTYPES = ("F16", "BF16")  # that scales are read from, in addition to F32; exact


class EightBits:
    """The scale of the weight is a part of its own, and inputs that a fixed scale rounds have one too."""

    mark = "weight_scale"

    @staticmethod
    def input_scale_info(fmt: ActivationFormat, shape: tuple[int, ...]) -> TensorInfo:
        """The weight, with one scale of its inputs if they are rounded by a fixed one."""
        return tensor_info(fmt, shape, (SharedInfo("input_scale", (1,), "float32"),) if fmt.static_inputs else ())

    @staticmethod
    def input_scale_parts(info: TensorInfo) -> list[Part]:
        has_scale = info.has_shared("input_scale")
        return [Part("input_scale", "F32", (1,), read_too=SCALE_DTYPES)] if has_scale else []

    @staticmethod
    def read_input_scale(module: StoredModule, info: TensorInfo) -> dict[str, np.ndarray]:
        return {"input_scale": read_scale(module, "input_scale")} if info.has_shared("input_scale") else {}


def read_scale(module: StoredModule, part: str) -> np.ndarray:
    """Scales of any float dtype as float32. raises InputError unless all are numbers above 0"""
    scale = module.read(part).astype(np.float32)
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise InputError(f"{module.folder}: '{module.name}.{part}' holds a scale that is no number above 0")
    return scale
