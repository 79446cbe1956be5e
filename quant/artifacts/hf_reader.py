"""A Hugging Face directory as a Source, quantized linears of every known layout included."""

from collections import defaultdict
from pathlib import Path

from quant.artifacts.file_bytes import combine, read_span, sha256_file
from quant.artifacts.hf_kv_scales import is_kv_scale, read_kv_cache
from quant.artifacts.hf_tokenizer import TOKENIZER, TOKENIZER_CONFIG, read_tokenizer
from quant.artifacts.json_file import read_json
from quant.artifacts.layouts import FORMAT_OF_DTYPE, StoredModule, module_of, read_layout
from quant.artifacts.safetensors_dir import read_tensors, weight_files
from quant.artifacts.safetensors_header import StoredTensor
from quant.errors import InputError
from quant.formats.base import rows_of
from quant.models import ModelConfig, expected_tensors, is_leftover
from quant.qtensor import QTensor
from quant.source import TensorInfo

CONFIG = "config.json"


class HFSource:
    """Source over a directory; config, tokenizer and all headers are checked when it opens.

    raises   InputError, naming the file, for all that is not a whole model of a known architecture
    """

    def __init__(self, path: Path, spec: str | None = None) -> None:
        self.spec = spec or str(path)
        self.path = path
        config_path = path / CONFIG
        self.config = read_json(config_path)
        model = ModelConfig.from_hf(self.config, str(config_path))
        self._layout = read_layout(self.config, str(config_path))
        self._stored = read_tensors(path)
        self._modules = _modules(path, self._stored)
        self._quantized: set[str] = set()  # canonical names of what the layout holds
        self.tensors = {name: self._info(name, want.shape) for name, want in expected_tensors(model).items()}
        self._check_nothing_else()
        self.config |= read_kv_cache(self.config, model, self._modules, str(config_path))
        self.tokenizer = read_tokenizer(path, self.config)

    def read(self, name: str) -> QTensor:
        info = self.tensors[name]
        if name in self._quantized:
            return self._layout.unpack(self._modules[module_of(name)], info)
        rows, _ = rows_of(info.shape)
        stored = self._stored[name]
        data = read_span(stored.path, stored.start, stored.size_bytes)
        return QTensor(info.format, info.shape, {"blocks": data.reshape(*rows, -1)})

    def fingerprint(self) -> str:
        files = [self.path / name for name in (CONFIG, TOKENIZER, TOKENIZER_CONFIG)]
        files = [file for file in files if file.exists()] + weight_files(self.path)
        return combine([f"{file.name} {sha256_file(file)}" for file in files])

    def _info(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        module = self._modules.get(module_of(name)) if name.endswith(".weight") else None
        info = self._layout.info(module, shape) if self._layout and module else None
        if info is not None:
            self._quantized.add(name)
            return info
        stored = self._stored.get(name)
        if stored is None:
            raise InputError(f"{self.path}: tensor {name!r} is missing; the files are not those of {CONFIG}")
        if stored.shape != shape:
            raise InputError(f"{stored.path}: tensor {name!r} has shape {stored.shape}, {CONFIG} says {shape}")
        if stored.dtype not in FORMAT_OF_DTYPE:
            known = ", ".join(FORMAT_OF_DTYPE)
            raise InputError(f"{stored.path}: tensor {name!r} has dtype {stored.dtype}, expected one of {known}")
        return TensorInfo(shape, FORMAT_OF_DTYPE[stored.dtype], stored.size_bytes)

    def _check_nothing_else(self) -> None:
        known = set(self.tensors)
        for name in self._quantized:
            module = self._modules[module_of(name)]
            known |= {f"{module.name}.{part}" for part in self._layout.claims(module, self.tensors[name])}
        for name, stored in self._stored.items():
            if name not in known and not is_leftover(name) and not is_kv_scale(name):
                raise InputError(f"{stored.path}: tensor {name!r} is none of this architecture's; it would be lost")


def _modules(path: Path, stored: dict[str, StoredTensor]) -> dict[str, StoredModule]:
    """Module name -> its tensors by what stands behind the last dot of their names."""
    parts: dict[str, dict[str, StoredTensor]] = defaultdict(dict)
    for name, tensor in stored.items():
        module, _, part = name.rpartition(".")
        parts[module][part] = tensor
    return {module: StoredModule(module, path, tensors) for module, tensors in parts.items()}
