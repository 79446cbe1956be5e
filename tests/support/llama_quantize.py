"""llama.cpp's own quantizer through llama-cpp-python: which type it gives each tensor of a model of some shape."""

import ctypes
import re
from pathlib import Path
from typing import Any

import gguf

from quant.artifacts.gguf_config import metadata_from_config
from quant.artifacts.gguf_layout import layout
from quant.artifacts.gguf_writer import write_head
from quant.formats import get_format
from quant.models import ModelConfig, expected_tensors
from quant.source import TensorInfo

LINE = re.compile(r"\[ *\d+/ *\d+\] +(?P<name>\S+) +- \[.*?\], type = +(?P<type>\w+), size = .*?(?:\((?P<new>\w+)\))?")


class ConfigSource:
    """The tensors of a model of any config, f16 with vectors, routers and positions in f32, all unreadable."""

    tokenizer = None

    def __init__(self, config: dict[str, Any]) -> None:
        self.spec, self.config = "shapes", config
        self.model = ModelConfig.from_hf(config)
        self.tensors = {}
        for name, want in expected_tensors(self.model).items():
            plain = len(want.shape) == 1 or any(word in want.gguf_name for word in ("ffn_gate_inp", "position_embd"))
            fmt = get_format("f32" if plain else "f16")
            self.tensors[name] = TensorInfo(want.shape, fmt.name, fmt.size_bytes(want.shape))

    def read(self, name: str):
        raise AssertionError(f"a plan is made without reading weights, got read({name!r})")

    def fingerprint(self) -> str:
        return "0" * 64


def write_shapes(source: ConfigSource, path: Path) -> None:
    """A GGUF file of these tensors, all of them holes: no byte of a weight is written."""
    writer = gguf.GGUFWriter(path, source.model.architecture.gguf_arch)
    for key, value in metadata_from_config(source.model).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](key, value)
    entries = layout(source, source.model)
    file = write_head(writer, entries)
    file.truncate(file.tell() + sum(entry.padded_bytes for entry in entries))
    writer.close()


def types_of_llama_quantize(path: Path, label: str, *, imatrix: bool = False) -> dict[str, str]:
    """GGUF name -> name of the type that llama-quantize gives it, by its dry run's own report."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.dry_run = int(gguf.LlamaFileType[f"MOSTLY_{label}"]), 1, True
    if imatrix:
        entry = llama_cpp.llama_model_imatrix_data(b"blk.0.attn_q.weight", (ctypes.c_float * 1)(1.0), 1)
        params.imatrix = (llama_cpp.llama_model_imatrix_data * 2)(entry, llama_cpp.llama_model_imatrix_data())
    said: list[str] = []
    listen = llama_cpp.llama_log_callback(lambda level, text, data: said.append(text.decode()))
    llama_cpp.llama_log_set(listen, ctypes.c_void_p(0))
    try:
        assert llama_cpp.llama_model_quantize(bytes(path), b"unused", params) == 0, "".join(said)
    finally:
        from llama_cpp._logger import llama_log_callback

        llama_cpp.llama_log_set(llama_log_callback, ctypes.c_void_p(0))
    found = [LINE.fullmatch(line.strip()) for line in "".join(said).splitlines() if line.startswith("[")]
    return {line["name"]: (line["new"] or line["type"]).lower() for line in found}
