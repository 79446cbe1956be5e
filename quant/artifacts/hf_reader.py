"""A Hugging Face directory as a Source, quantized linears of every known layout included."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from quant.artifacts.f32_vectors import absent_biases, zero_vector
from quant.artifacts.file_bytes import combine, read_span, sha256_file
from quant.artifacts.hf_added_tokens import ADDED_TOKENS, SPECIAL_TOKENS_MAP
from quant.artifacts.hf_kv_scales import is_kv_scale, read_kv_cache
from quant.artifacts.hf_stored import from_file, info_from_file, transposed, without_prefix
from quant.artifacts.hf_tokenizer import CHAT_TEMPLATE, KEPT, TOKENIZER, TOKENIZER_CONFIG, read_tokenizer
from quant.artifacts.layouts import FORMAT_OF_DTYPE, READ_FORMAT, StoredModule, module_of, read_layout, with_plain_names
from quant.artifacts.stop_tokens import GENERATION_CONFIG, hf_stop_tokens, with_tokenizers_end
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.formats.base import rows_of
from quant.json_file import read_json
from quant.models import EMBEDDING, HEAD, ExpectedTensor, ModelConfig, expected_tensors, is_leftover, split_name
from quant.models.stored import StoredAt
from quant.present import present
from quant.qtensor import QTensor
from quant.regular_file import check_links
from quant.safetensors.folder import read_tensors, weight_files
from quant.safetensors.header import StoredTensor
from quant.safetensors.writer import INDEX_NAME
from quant.source import LocalSource, TensorInfo, TokenizerInfo, row_ranges

CONFIG = "config.json"
TEXT_FILES = (CONFIG, TOKENIZER, *KEPT, INDEX_NAME)
CHUNK_BYTES = 64 << 20


class HFSource(LocalSource):
    """Source over a directory; config, tokenizer and all headers are checked when it opens.

    raises   InputError, naming the file, for all that is not a whole model of a known architecture
    """

    def __init__(self, path: Path, spec: str | None = None) -> None:
        super().__init__(path, spec)
        config_path = path / CONFIG
        check_links(path, TEXT_FILES)
        self.config = with_plain_names(read_json(config_path))
        model = ModelConfig.from_hf(self.config, str(config_path))
        self._layout = read_layout(self.config, str(config_path))
        self._stored = read_tensors(path)
        self.has_untied_head = model.tie_word_embeddings and has_own_head(self._stored, model)
        if self.has_untied_head:
            logging.getLogger(__name__).warning(
                "%s: tie_word_embeddings is true, and %s differs from the embedding: it is used, as in transformers 5",
                path,
                HEAD,
            )
            self.config |= {"tie_word_embeddings": False}
            model = ModelConfig.from_hf(self.config, str(config_path))
        self._modules = _modules(path, self._stored)
        self._expected = expected_tensors(model)
        self._prefix = model.architecture.prefix
        self._stacks = KeptStacks()
        self._has_no_prefix = without_prefix(self._stored, self._prefix)
        self._whole: dict[str, TensorInfo] = {}  # canonical name -> info of the file's whole tensor, if quantized
        self._absent = absent_biases(self._expected, lambda name: self._file_name(name) in self._stored, str(path))
        self.tensors = {name: self._absent.get(name) or self._info(name, want) for name, want in self._expected.items()}
        self._check_nothing_else(model)
        self.config |= read_kv_cache(self.config, model, self._modules, str(config_path))
        self._stop_tokens = hf_stop_tokens(path, self.config)
        self.config |= self._stop_tokens
        self.tokenizer = read_tokenizer(path, self.config)
        self.config |= with_tokenizers_end(self.config, self.tokenizer)

    def read(self, name: str) -> QTensor:
        at = self._expected[name].stored
        if name in self._absent:
            return zero_vector(self._absent[name])
        if at.place is None:
            return from_file(at, self._read_whole(name))
        return from_file(at, self._stacks.get(self._file_name(name), at, lambda: self._read_whole(name)))

    def _read_whole(self, name: str) -> QTensor:
        """The file's whole tensor, rows out x in: this one's rows, and those of others in its stack."""
        at, file_name = self._expected[name].stored, self._file_name(name)
        if name in self._whole:
            return present(self._layout).unpack(self._modules[module_of(file_name)], self._whole[name])
        qtensor = read_stored(self._stored[file_name])
        return transposed(qtensor) if at.transposed else qtensor

    def has_row_blocks(self, name: str) -> bool:
        """For floats that the file holds as they are."""
        at = self._expected[name].stored
        is_plain = at.place is None and not at.transposed and not at.offset
        return is_plain and name not in self._whole and name not in self._absent

    def row_blocks(self, name: str, num_rows: int) -> Iterator[QTensor]:
        stored = self._stored[self._file_name(name)]
        row_bytes = stored.size_bytes // stored.shape[0]
        for rows in row_ranges(stored.shape, num_rows):
            shape, start = (len(rows), *stored.shape[1:]), stored.start + rows.start * row_bytes
            yield read_stored(replace(stored, shape=shape, start=start, size_bytes=len(rows) * row_bytes))

    def fingerprint(self) -> str:
        names = [
            CONFIG,
            TOKENIZER,
            TOKENIZER_CONFIG,
            CHAT_TEMPLATE,
            *([GENERATION_CONFIG] if self._stop_tokens else []),
            *files_of_added_tokens(self.tokenizer),
        ]
        return folder_fingerprint(self.path, names)

    def _file_name(self, name: str) -> str:
        stored = self._expected[name].stored.name
        return stored.removeprefix(self._prefix) if self._has_no_prefix else stored

    def _info(self, name: str, want: ExpectedTensor) -> TensorInfo:
        at, file_name = want.stored, self._file_name(name)
        shape = at.shape(want.shape)
        module = self._modules.get(module_of(file_name)) if file_name.endswith(".weight") else None
        info = self._layout.info(module, shape) if self._layout and module else None
        if info is not None:
            self._whole[name] = info
        else:
            in_file = shape[::-1] if at.transposed else shape
            info = replace(stored_info(self._stored.get(file_name), file_name, in_file, self.path), shape=shape)
        return info_from_file(at, info, want.shape)

    def _check_nothing_else(self, model: ModelConfig) -> None:
        known = {self._file_name(name) for name in self.tensors}
        for name, info in self._whole.items():
            module = self._modules[module_of(self._file_name(name))]
            known |= {f"{module.name}.{part}" for part in present(self._layout).claims(module, info)}
        for name, stored in self._stored.items():
            if name not in known and not is_leftover(name, model) and not is_kv_scale(name):
                where = f"{stored.path}: tensor {name!r}"
                raise InputError(f"{where} is none of this architecture's; it would be lost{_flag(name, model)}")


def _flag(name: str, model: ModelConfig) -> str:
    """The key of the config that gives the architecture this tensor, as the end of an error, or nothing."""
    rows = [row for row in model.architecture.tensors if row.optional and row.name == split_name(name)[0]]
    return f". With {rows[0].only_if}: true in {CONFIG} it is read" if rows else ""


def files_of_added_tokens(tokenizer: TokenizerInfo | None) -> list[str]:
    """The files that a fingerprint needs in addition, because tokens come from them."""
    return [ADDED_TOKENS, SPECIAL_TOKENS_MAP] if tokenizer is not None and tokenizer.is_completed else []


def folder_fingerprint(folder: Path, names: list[str]) -> str:
    """sha256 hex of the files of these names that exist, and of the weights."""
    files = [folder / name for name in names]
    files = [file for file in files if file.exists()] + weight_files(folder)
    return combine([f"{file.name} {sha256_file(file)}" for file in files])


def stored_info(stored: StoredTensor | None, name: str, shape: tuple[int, ...], folder: Path) -> TensorInfo:
    """A tensor of floats as the config wants it. raises InputError if it is missing or different"""
    if stored is None:
        if (folder / "quantize_config.json").exists():
            raise InputError(
                f"{folder}: tensor {name!r} is missing, and quantize_config.json of old AutoGPTQ is not read: put its "
                f"keys into {CONFIG} as quantization_config, with the quant_method gptq"
            )
        raise InputError(f"{folder}: tensor {name!r} is missing; the files are not those of {CONFIG}")
    if stored.shape != shape:
        raise InputError(f"{stored.path}: tensor {name!r} has shape {stored.shape}, {CONFIG} says {shape}")
    if stored.dtype not in READ_FORMAT:
        known = ", ".join(READ_FORMAT)
        raise InputError(f"{stored.path}: tensor {name!r} has dtype {stored.dtype}, expected one of {known}")
    read_as = FORMAT_OF_DTYPE.get(stored.dtype, "f32")
    return TensorInfo(shape, read_as, get_format(read_as).size_bytes(shape))


def read_stored(stored: StoredTensor) -> QTensor:
    """The floats of a tensor: float64 rounded to float32, as transformers does for a dtype of float32."""
    rows, _ = rows_of(stored.shape)
    data = read_span(stored.path, stored.start, stored.size_bytes)
    qtensor = QTensor(READ_FORMAT[stored.dtype], stored.shape, {"blocks": data.reshape(*rows, -1)})
    return get_format("f32").quantize_ref(dequantize(qtensor)) if qtensor.format == "f64" else qtensor


def _modules(path: Path, stored: dict[str, StoredTensor]) -> dict[str, StoredModule]:
    """Module name -> its tensors by the part of their names after the last dot."""
    parts: dict[str, dict[str, StoredTensor]] = defaultdict(dict)
    for name, tensor in stored.items():
        module, _, part = name.rpartition(".")
        parts[module][part] = tensor
    return {module: StoredModule(module, path, tensors) for module, tensors in parts.items()}


class KeptStacks:
    """The stacks of one module, each until all of its members were asked for.

    Members are read one after another, a module's weights and biases in turn: so no more than one module is held,
    and nothing behind the last member.
    """

    def __init__(self) -> None:
        self._module: str | None = None
        self._kept: dict[str, tuple[QTensor, set[int]]] = {}  # name in the file -> all of it, the places asked for

    def get(self, file_name: str, at: StoredAt, read: Callable[[], QTensor]) -> QTensor:
        """The whole stack that holds `at`; `read` makes it if it is not held."""
        module = module_of(file_name.removesuffix(".bias"))
        if module != self._module:
            self._module, self._kept = module, {}
        qtensor, asked = self._kept.get(file_name) or (read(), set())
        asked.add(present(at.place))
        self._kept[file_name] = qtensor, asked
        if len(asked) == len(at.sizes):
            del self._kept[file_name]
        return qtensor


def has_own_head(stored: Mapping[str, StoredTensor], model: ModelConfig) -> bool:
    """Whether the head has another shape or other numbers than the embedding, and is no copy of it."""
    prefix, name = model.architecture.prefix, expected_tensors(model)[EMBEDDING].stored.name
    head = stored.get(HEAD)
    embedding = stored.get(name.removeprefix(prefix) if without_prefix(stored, prefix) else name)
    if head is None or embedding is None:
        return False
    if head.shape != embedding.shape or any(tensor.dtype not in READ_FORMAT for tensor in (head, embedding)):
        return True
    rows = max(1, CHUNK_BYTES * head.shape[0] // max(head.size_bytes, embedding.size_bytes, 1))
    starts = range(0, head.shape[0], rows)
    return any(_differ(head, embedding, start, min(rows, head.shape[0] - start)) for start in starts)


def _differ(head: StoredTensor, embedding: StoredTensor, start: int, count: int) -> bool:
    one, other = (_rows(tensor, start, count) for tensor in (head, embedding))
    if head.dtype == embedding.dtype:
        return not np.array_equal(one, other)
    return not np.array_equal(dequantize(_qtensor(head, one)), dequantize(_qtensor(embedding, other)))


def _rows(tensor: StoredTensor, start: int, count: int) -> np.ndarray:
    """[count, bytes of a row] uint8"""
    of_row = tensor.size_bytes // tensor.shape[0]
    return read_span(tensor.path, tensor.start + start * of_row, count * of_row).reshape(count, of_row)


def _qtensor(tensor: StoredTensor, data: np.ndarray) -> QTensor:
    return QTensor(READ_FORMAT[tensor.dtype], (len(data), *tensor.shape[1:]), {"blocks": data})
