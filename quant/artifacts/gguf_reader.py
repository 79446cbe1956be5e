"""A GGUF model as a Source: Hugging Face names, row order and config, bytes as in the file."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from quant.artifacts.f32_vectors import absent_biases, zero_vector
from quant.artifacts.file_bytes import combine, read_span, sha256_file
from quant.artifacts.gguf_config import config_from_metadata
from quant.artifacts.gguf_header import GGUFTensor
from quant.artifacts.gguf_kv import kv_from_metadata
from quant.artifacts.gguf_latent import SplitUp, join_split
from quant.artifacts.gguf_places import find, stack_sizes
from quant.artifacts.gguf_rope import rows_to_halves
from quant.artifacts.gguf_shards import read_shards, shard_paths
from quant.artifacts.gguf_tokenizer import tokenizer_from_metadata
from quant.errors import InputError
from quant.formats import dequantize
from quant.formats.base import rows_of
from quant.models import ExpectedTensor, ModelConfig, expected_tensors
from quant.qtensor import QTensor
from quant.source import LocalSource, TensorInfo, row_ranges

ROPE_FREQS = "rope_freqs.weight"


class GGUFSource(LocalSource):
    """Source over one .gguf file or all of its shards; the whole header is checked when it opens.

    raises   InputError, naming the file, for all that is not a whole model of a known architecture
    """

    def __init__(self, path: Path, spec: str | None = None) -> None:
        super().__init__(path, spec)
        self.paths = shard_paths(path)  # every file of the model
        header = read_shards(path)
        self.metadata = header.metadata
        tensors = join_split(header.tensors, str(path))
        self.config = _config(header.metadata, tensors, str(path))
        self._expected = expected_tensors(ModelConfig.from_hf(self.config, str(path)))
        self._absent = absent_biases(self._expected, lambda name: self._expected[name].gguf_name in tensors, str(path))
        self._stored = _match(self._expected, self._absent, tensors, str(path))
        self.tensors = {name: self._info(name) for name in self._expected}
        self.tokenizer = tokenizer_from_metadata(header.metadata, self.config["vocab_size"], str(path))

    def _info(self, name: str) -> TensorInfo:
        stored = self._stored.get(name)
        return TensorInfo(stored.shape, stored.format, stored.size_bytes) if stored else self._absent[name]

    def read(self, name: str) -> QTensor:
        if name in self._absent:
            return zero_vector(self._absent[name])
        stored = self._stored[name]
        qtensor = stored.read(read_tensor) if isinstance(stored, SplitUp) else read_tensor(stored)
        heads = self._expected[name].heads
        return qtensor.take_rows(rows_to_halves(qtensor.shape[0], heads)) if heads else qtensor

    def has_row_blocks(self, name: str) -> bool:
        """Not for rows in another order than the file's, nor for a tensor that is stored in two parts."""
        return isinstance(self._stored.get(name), GGUFTensor) and not self._expected[name].heads

    def row_blocks(self, name: str, num_rows: int) -> Iterator[QTensor]:
        stored = self._stored[name]
        assert isinstance(stored, GGUFTensor)
        row_bytes = stored.size_bytes // stored.shape[0]
        for rows in row_ranges(stored.shape, num_rows):
            shape, start = (len(rows), *stored.shape[1:]), stored.start + rows.start * row_bytes
            yield read_tensor(replace(stored, shape=shape, start=start, size_bytes=len(rows) * row_bytes))

    def fingerprint(self) -> str:
        return combine([sha256_file(path) for path in self.paths])


def read_tensor(tensor: GGUFTensor) -> QTensor:
    """The tensor's bytes, rows in the file's order."""
    rows, _ = rows_of(tensor.shape)
    data = read_span(tensor.path, tensor.start, tensor.size_bytes)
    return QTensor(tensor.format, tensor.shape, {"blocks": data.reshape(*rows, -1)})


def _config(metadata: dict, tensors: dict[str, GGUFTensor | SplitUp], where: str) -> dict:
    if "token_embd.weight" not in tensors:
        raise InputError(f"{where}: tensor 'token_embd.weight' is missing; this is no language model")
    factors = None
    if ROPE_FREQS in tensors:
        factors_of = tensors[ROPE_FREQS]
        assert isinstance(factors_of, GGUFTensor)
        stored = read_tensor(factors_of)
        if len(stored.shape) != 1:
            raise InputError(f"{where}: tensor {ROPE_FREQS!r} has shape {stored.shape}, expected one dimension")
        factors = dequantize(stored)
    config = config_from_metadata(metadata, {name: tensor.shape for name, tensor in tensors.items()}, factors, where)
    num_pairs = ModelConfig.from_hf(config, where).rope_dim // 2
    if factors is not None and len(factors) != num_pairs:
        raise InputError(f"{where}: tensor {ROPE_FREQS!r} has {len(factors)} factors, expected {num_pairs}")
    return config | kv_from_metadata(metadata, where)


def _match(
    expected: dict[str, ExpectedTensor],
    absent: Collection[str],
    tensors: dict[str, GGUFTensor | SplitUp],
    where: str,
) -> dict[str, GGUFTensor | SplitUp]:
    """Canonical name -> stored tensor. raises InputError if one is missing, unknown or of another shape."""
    stored, found = {}, {ROPE_FREQS}
    sizes = stack_sizes(expected)
    for name, want in expected.items():
        if name in absent:
            continue
        gguf_name, stored[name] = find(tensors, want, sizes[want.gguf_name], where)
        found.add(gguf_name)
    unknown = set(tensors) - found
    if unknown:
        raise InputError(f"{where}: tensor {min(unknown)!r} is none of this architecture's; it would be lost")
    return stored
