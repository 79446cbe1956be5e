"""The layout of bitsandbytes' 8-bit linears, LLM.int8().

part            shape
weight          [N, K] int8
SCB             [N] float32       absmax of each row
weight_format   [] uint8          0: rows as they are, the one order that is still written

and where calibration found outlier features (method llm-int8), which bitsandbytes itself leaves unread:

outlier_weight    [N, F] float16  their weights
outlier_features  [F] int32
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np

from quant.artifacts.layouts.base import NEXT_STEP, Layout, Part, StoredModule, check_holds, module_of, tensor_info
from quant.errors import InputError, shown
from quant.formats import get_format
from quant.formats.llm_int8 import OUTLIER_THRESHOLD, LlmInt8Format
from quant.models import HEAD
from quant.present import present
from quant.qtensor import QTensor
from quant.source import SharedInfo, TensorInfo

ROW_ORDER = 0


class BitsandbytesConfig(TypedDict):
    """The quantization_config, as it is written."""

    quant_method: str
    load_in_8bit: bool
    load_in_4bit: bool
    llm_int8_threshold: float
    llm_int8_skip_modules: list[str]
    llm_int8_has_fp16_weight: bool
    llm_int8_enable_fp32_cpu_offload: bool


class BitsandbytesLayout(Layout):
    quant_method = "bitsandbytes"
    formats = (LlmInt8Format,)

    def __init__(self, config: BitsandbytesConfig | None = None) -> None:
        self._config = config

    @classmethod
    def of_tensors(cls, linears: Mapping[str, TensorInfo]) -> "BitsandbytesLayout":
        check_holds(cls, linears)
        # A tied head has no tensor of its own, and is a linear all the same.
        skipped = {name for name, info in linears.items() if not cls.holds(get_format(info.format))}
        skipped |= {HEAD} - set(linears)
        return cls(
            {
                "quant_method": cls.quant_method,
                "load_in_8bit": True,
                "load_in_4bit": False,
                "llm_int8_threshold": OUTLIER_THRESHOLD,
                "llm_int8_skip_modules": sorted(module_of(name) for name in skipped),
                "llm_int8_has_fp16_weight": False,
                "llm_int8_enable_fp32_cpu_offload": False,
            }
        )

    @classmethod
    def of_config(cls, config: Mapping[str, Any], where: str) -> "BitsandbytesLayout":
        threshold = config.get("llm_int8_threshold", OUTLIER_THRESHOLD)
        if config.get("load_in_8bit") is not True or threshold != OUTLIER_THRESHOLD:
            bits = "load_in_4bit" if config.get("load_in_4bit") is True else "load_in_8bit"
            raise InputError(
                f"{where}: quantization_config has {bits} {shown(config.get(bits))} and llm_int8_threshold "
                f"{shown(threshold)}; read here: load_in_8bit with a threshold of {OUTLIER_THRESHOLD}; {NEXT_STEP}"
            )
        return cls()

    def config(self) -> BitsandbytesConfig:
        return present(self._config)

    def parts(self, info: TensorInfo) -> tuple[Part, ...]:
        parts = [
            Part("weight", "I8", info.shape),
            Part("SCB", "F32", info.shape[:1]),
            Part("weight_format", "U8", ()),
        ]
        for shared in info.shared:
            parts.append(Part("outlier_weight", "F16", (info.shape[0], *shared.shape)))
            parts.append(Part("outlier_features", "I32", shared.shape))
        return tuple(parts)

    def pack(self, qtensor: QTensor) -> dict[str, np.ndarray]:
        return {**qtensor.parts, **qtensor.shared, "weight_format": np.array(ROW_ORDER, dtype=np.uint8)}

    def info(self, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo | None:
        if "SCB" not in module.parts:
            return None
        fmt = LlmInt8Format()
        module.check_matrix(fmt, shape)
        info = tensor_info(fmt, shape)
        if "outlier_features" in module.parts:
            features = SharedInfo("outlier_features", module.parts["outlier_features"].shape, "int32")
            info = tensor_info(fmt, shape, (features,))
            info = replace(info, size_bytes=info.size_bytes + 2 * shape[0] * math.prod(features.shape))
        module.check(self.parts(info))
        _check_features(module, shape[1])
        if module.read("weight_format") != ROW_ORDER:
            raise InputError(f"{module.folder}: {module.name} has its weight in a GPU's order; save it by rows")
        return info

    def unpack(self, module: StoredModule, info: TensorInfo) -> QTensor:
        parts = {part: module.read(part) for part in ("weight", "SCB", "outlier_weight") if part in module.parts}
        return QTensor(
            info.format, info.shape, parts, {shared.name: module.read(shared.name) for shared in info.shared}
        )


def _check_features(module: StoredModule, row_size: int) -> None:
    if "outlier_features" in module.parts:
        features = module.read("outlier_features")
        if not ((features >= 0) & (features < row_size)).all():
            raise InputError(
                f"{module.folder}: '{module.name}.outlier_features' names features outside 0..{row_size - 1}"
            )
