"""Writes a Source as one GGUF file, or as shards, that llama.cpp loads, a tensor at a time."""

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import gguf
import numpy as np

from quant.artifacts.f32_vectors import VECTOR_FORMAT
from quant.artifacts.gguf_config import metadata_from_config
from quant.artifacts.gguf_cursor import Written
from quant.artifacts.gguf_header import is_gguf
from quant.artifacts.gguf_kv import metadata_from_kv
from quant.artifacts.gguf_layout import Entry, layout, rope_factors, split_entries
from quant.artifacts.gguf_rope import rows_to_pairs
from quant.artifacts.gguf_shard_set import atomic_shards
from quant.artifacts.gguf_shards import shard_sizes
from quant.artifacts.gguf_tokenizer import metadata_from_tokenizer
from quant.artifacts.manifest import TensorHashes, hash_tensor
from quant.artifacts.progress import Progress, each_tensor
from quant.atomic import atomic_file
from quant.errors import InputError
from quant.formats import BlockFormat, get_format
from quant.models import ModelConfig, expected_tensors
from quant.models.online import online_rotations
from quant.present import present
from quant.source import Source

Seal = Callable[[Sequence[Path], TensorHashes], None]


class Writer(gguf.GGUFWriter):
    """The package's writer, with empty lists of texts: llama.cpp refuses a vocabulary of bytes without `merges`."""

    def add_array(self, key: str, val: Sequence[Any]) -> None:
        self.add_key_value(key, val, gguf.GGUFValueType.ARRAY)

    def _pack_val(
        self, val: Any, vtype: gguf.GGUFValueType, add_vtype: bool, sub_type: gguf.GGUFValueType | None = None
    ) -> bytes:
        if vtype == gguf.GGUFValueType.ARRAY and len(val) == 0:
            return struct.pack("<IIQ", vtype, gguf.GGUFValueType.STRING, 0)
        return super()._pack_val(val, vtype, add_vtype, sub_type)


_ADD = {
    bool: Writer.add_bool,
    int: Writer.add_uint32,
    float: Writer.add_float32,
    str: Writer.add_string,
    list: Writer.add_array,
    bytes: Writer.add_array,
}


def write_gguf(
    source: Source,
    path: Path,
    *,
    name: str,
    metadata: Mapping[str, Written] | None = None,
    progress: Progress | None = None,
    max_shard_bytes: int | None = None,
    seal: Seal | None = None,
) -> TensorHashes:
    """Writes `path` whole or not at all; returns the sha256 of each tensor under its canonical name.

    source            with its vectors in float32, see `F32Vectors`
    name              general.name
    metadata          more keys, see `gguf_general`; they go before those that follow from the model
    max_shard_bytes   of tensors in a file: the files are then NAME-00001-of-0000N.gguf, as gguf-split makes them
    seal              called with the files, whole under their temporary names, and the hashes
    raises            InputError where GGUF has no type for a format or no word for the tokenizer, or `path` cannot be
                      written
    """
    check_formats(source)
    config = ModelConfig.of(source)
    entries = layout(source, config)
    metadata = _metadata(source, config, name) | dict(metadata or {})
    hashes: TensorHashes = {}
    arrays = _arrays(source, config, entries, hashes, progress)
    needed_bytes = sum(entry.size_bytes for entry in entries)
    if max_shard_bytes is None:
        with atomic_file(path, replaces=is_gguf, needed_bytes=needed_bytes) as temp:
            _write_file(temp, config, metadata, {}, entries, arrays)
            next(arrays, None)  # the last tensor's progress is reported when another is asked for
            if seal is not None:
                seal([temp], hashes)
    else:
        counts = shard_sizes([entry.padded_bytes for entry in entries], max_shard_bytes)
        with atomic_shards(path, len(counts), needed_bytes=needed_bytes) as temps:
            for number, (temp, shard) in enumerate(zip(temps, split_entries(entries, counts), strict=True)):
                split = {"split.no": number, "split.count": len(counts), "split.tensors.count": len(entries)}
                _write_file(temp, config, {} if number else metadata, split, shard, arrays)
            next(arrays, None)
            if seal is not None:
                seal(temps, hashes)
    return hashes


def check_gguf(source: Source, max_shard_bytes: int | None = None) -> None:
    """raises InputError, before any work, for a model that `write_gguf` refuses; reads no tensor

    source   has the tensors that will be written, see `write_gguf`
    """
    check_formats(source)
    config = ModelConfig.of(source)
    entries = layout(source, config)
    _metadata(source, config, source.spec)
    if max_shard_bytes is not None:
        shard_sizes([entry.padded_bytes for entry in entries], max_shard_bytes)


def head_bytes(source: Source, *, name: str, metadata: Mapping[str, Written] | None = None) -> int:
    """Bytes of a file of these tensors before their data: keys and table. Formats do not change it.

    name, metadata   as of `write_gguf`
    """
    config = ModelConfig.of(source)
    keys = _metadata(source, config, name) | dict(metadata or {})
    with TemporaryDirectory(prefix="qbench-") as folder:
        path = Path(folder) / "head.gguf"
        writer = _new_writer(path, config, keys, {})
        write_head(writer, layout(source, config))
        writer.close()
        return path.stat().st_size


def _write_file(
    path: Path,
    config: ModelConfig,
    metadata: Mapping[str, Written],
    split: Mapping[str, int],
    entries: list[Entry],
    arrays: Iterator[np.ndarray],
) -> None:
    """One file: its keys, its table, and as many arrays as its entries have."""
    writer = _new_writer(path, config, metadata, split)
    try:
        file = write_head(writer, entries)
        for entry in entries:  # not by write_tensor_data, which wants a stack of experts in one piece
            for array in islice(arrays, max(1, len(entry.names))):
                np.ascontiguousarray(array).tofile(file)
            writer.write_padding(file, entry.size_bytes)
    finally:
        writer.close()


def _new_writer(path: Path, config: ModelConfig, metadata: Mapping[str, Written], split: Mapping[str, int]) -> Writer:
    """A writer that has the keys of one file."""
    writer = Writer(path, present(config.architecture.gguf_arch))
    for key, value in metadata.items():
        _ADD[type(value)](writer, key, value)
    for key, value in split.items():  # of the types that gguf-split gives them
        (writer.add_int32 if key == "split.tensors.count" else writer.add_uint16)(key, value)
    return writer


def write_head(writer: gguf.GGUFWriter, entries: Sequence[Entry]) -> BinaryIO:
    """The file, of which the keys and the table of the entries are written, and their data comes next."""
    for entry in entries:
        gguf_type = gguf.GGMLQuantizationType(entry.gguf_type)
        writer.add_tensor_info(entry.gguf_name, entry.shape, np.dtype(np.float32), entry.size_bytes, gguf_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    file = present(writer.fout)[0]
    writer.write_padding(file, file.tell())
    return file


def check_formats(source: Source) -> None:
    """raises InputError if GGUF has no type for a format of the source, or the source has online rotations."""
    if places := online_rotations(source.config):
        raise InputError(
            f"{source.spec} rotates {' and '.join(sorted(places))} while it runs, which a GGUF file cannot say; "
            "write a directory (no .gguf suffix)"
        )
    for name, info in source.tensors.items():
        if get_format(info.format).gguf_type is None:
            raise InputError(
                f"GGUF has no type for {info.format} ({name}); write a Hugging Face directory (no .gguf suffix)"
            )
        if len(info.shape) == 1 and info.format != VECTOR_FORMAT:
            raise ValueError(f"{name} is {info.format}; llama.cpp needs vectors in {VECTOR_FORMAT}: use F32Vectors")


def _metadata(source: Source, config: ModelConfig, name: str) -> dict[str, Written]:
    weights = Counter()
    for info in source.tensors.values():
        weights[info.format] += int(np.prod(info.shape, dtype=np.int64))
    return {
        "general.name": name,
        "general.file_type": BlockFormat.registered[weights.most_common(1)[0][0]].gguf_file_type,
        "general.quantization_version": gguf.GGML_QUANT_VERSION,
        **metadata_from_config(config),
        **metadata_from_kv(source.config),
        **metadata_from_tokenizer(source.tokenizer, config.vocab_size, source.spec, config.eos_token_ids),
    }


def _arrays(
    source: Source, config: ModelConfig, entries: list[Entry], hashes: TensorHashes, progress: Progress | None
) -> Iterator[np.ndarray]:
    """The bytes of each tensor of each entry, in order."""
    expected = expected_tensors(config)
    if not entries[0].names:
        yield present(rope_factors(config))
    names = [name for entry in entries for name in entry.names]
    for name in each_tensor(source, progress, names):
        qtensor, heads = source.read(name), expected[name].heads
        if heads:
            qtensor = qtensor.take_rows(rows_to_pairs(qtensor.shape[0], heads))
        hashes[name] = hash_tensor(qtensor)
        yield qtensor.parts["blocks"]
