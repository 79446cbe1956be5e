"""The layout of linears in a trellis code, which no other program reads yet.

part             shape
weight_trellis   [N, K * bits / 8] uint8   as quant/formats/trellis.py draws it
weight_scale     [N, 1] float32

quantization_config: {"quant_method": "trellis", "linears": {module: name of its format}}
"""

from collections.abc import Mapping
from typing import Any

from quant.artifacts.layouts.base import Layout, Part, StoredModule, check_holds, module_of, tensor_info
from quant.artifacts.layouts.eight_bits import read_scale
from quant.errors import InputError, shown
from quant.formats import TrellisFormat, get_format
from quant.json_fields import JsonFields
from quant.present import present
from quant.qtensor import QTensor
from quant.source import TensorInfo


class TrellisLayout(Layout):
    quant_method = "trellis"
    formats = (TrellisFormat,)

    def __init__(self, linears: Mapping[str, str]) -> None:
        self._linears = linears  # module -> format

    @classmethod
    def of_tensors(cls, linears: Mapping[str, TensorInfo]) -> "TrellisLayout":
        check_holds(cls, linears)
        quantized = {name: info.format for name, info in linears.items() if cls.holds(get_format(info.format))}
        return cls({module_of(name): fmt for name, fmt in quantized.items()})

    @classmethod
    def of_config(cls, config: Mapping[str, Any], where: str) -> "TrellisLayout":
        place = f"{where}: quantization_config"
        linears = JsonFields(config, place).fields("linears")
        if linears is None:
            raise InputError(f"{place} has no linears, expected the format of each; write the directory again")
        named = {module: linears.text(module) for module in config["linears"]}
        for module, name in named.items():
            if name is None or TrellisFormat.parse(name) is None:
                raise InputError(f"{place} gives {module} {shown(name)}, expected trellis-w2 or a format named like it")
        return cls({module: present(name) for module, name in named.items()})

    def config(self) -> Mapping[str, object]:
        return {"quant_method": self.quant_method, "linears": dict(self._linears)}

    def parts(self, info: TensorInfo) -> tuple[Part, ...]:
        num_rows, row_size = info.shape
        row_bytes = row_size * present(TrellisFormat.parse(info.format)).bits // 8
        return Part("weight_trellis", "U8", (num_rows, row_bytes)), Part("weight_scale", "F32", (num_rows, 1))

    def pack(self, qtensor: QTensor) -> dict[str, Any]:
        return qtensor.parts

    def info(self, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo | None:
        if module.name not in self._linears:
            return None
        fmt = present(TrellisFormat.parse(self._linears[module.name]))
        try:
            info = tensor_info(fmt, shape)
        except InputError as error:
            raise InputError(f"{module.folder}: {module.name}: {error}") from error
        module.check(self.parts(info))
        return info

    def unpack(self, module: StoredModule, info: TensorInfo) -> QTensor:
        parts = {"weight_trellis": module.read("weight_trellis"), "weight_scale": read_scale(module, "weight_scale")}
        return QTensor(info.format, info.shape, parts)
