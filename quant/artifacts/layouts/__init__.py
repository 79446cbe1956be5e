"""How a Hugging Face directory lays out quantized linears: one row a `quant_method`."""

from collections.abc import Mapping
from typing import Any

from quant.artifacts.layouts.base import (
    FORMAT_OF_DTYPE,
    NEXT_STEP,
    READ_FORMAT,
    Layout,
    Part,
    StoredModule,
    module_of,
)
from quant.artifacts.layouts.bitsandbytes import BitsandbytesLayout
from quant.artifacts.layouts.compressed_tensors import CompressedTensorsLayout
from quant.artifacts.layouts.gptq import GptqLayout
from quant.artifacts.layouts.rotated import RotatedLayout, with_own_names, with_plain_names
from quant.artifacts.layouts.trellis import TrellisLayout
from quant.errors import InputError, shown
from quant.formats import get_format
from quant.json_fields import JsonFields
from quant.source import Source

__all__ = [
    "FORMAT_OF_DTYPE",
    "LAYOUTS",
    "READ_FORMAT",
    "CompressedTensorsLayout",
    "Layout",
    "Part",
    "RotatedLayout",
    "StoredModule",
    "choose_packing",
    "module_of",
    "read_layout",
    "with_own_names",
    "with_plain_names",
]

LAYOUTS = {
    layout.quant_method: layout
    for layout in (CompressedTensorsLayout, GptqLayout, BitsandbytesLayout, TrellisLayout, RotatedLayout)
}


def choose_packing(source: Source) -> str:
    """The packing of a model that no recipe names one for: its own, or the first that holds all its formats.

    raises   InputError, naming the tensor, for a format that no layout holds
    """
    formats = {
        info.format: name for name, info in source.tensors.items() if info.format not in FORMAT_OF_DTYPE.values()
    }
    quantization = source.config.get("quantization_config")
    own = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    for packing in (own, *LAYOUTS):
        if packing in LAYOUTS and all(LAYOUTS[packing].holds(get_format(fmt)) for fmt in formats):
            return packing
    for fmt, name in formats.items():
        if not any(layout.holds(get_format(fmt)) for layout in LAYOUTS.values()):
            raise InputError(f"a Hugging Face directory cannot hold {fmt} ({name}); write a .gguf file")
    raise InputError(f"no layout of a Hugging Face directory holds {', '.join(formats)} in one")


def read_layout(config: Mapping[str, Any], where: str) -> Layout | None:
    """The layout that a config.json names; None if it has no quantization_config.

    where    beginning of errors: the file
    raises   InputError for another quantization method or scheme
    """
    quantization = config.get("quantization_config")
    if quantization is None:
        return None
    method = JsonFields(quantization, f"{where}: quantization_config").text("quant_method")
    if method not in LAYOUTS:
        raise InputError(
            f"{where}: quantization_config of {shown(method)}; read here: {', '.join(LAYOUTS)}; {NEXT_STEP}"
        )
    return LAYOUTS[method].of_config(quantization, where)
