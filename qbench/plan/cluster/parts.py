"""part_tensors: the tensors that one rank holds, known without reading a weight."""

from dataclasses import replace
from math import prod

from qbench.runtime.parallel.shard import LAYER, Shard, rows_size
from quant.formats import ActivationFormat, get_format
from quant.models import EMBEDDING, HEAD, ModelConfig, expected_tensors, split_name
from quant.source import Source, TensorInfo


def part_tensors(source: Source, config: ModelConfig, shard: Shard) -> dict[str, TensorInfo]:
    """The model's name of each tensor -> the part of it that this rank holds.

    config   of the whole model
    returns  the head's rows apart from the embedding, if lanes share the head of a tied model
    """
    found = {}
    for name in expected_tensors(config):
        _, layer, expert = split_name(name)
        is_here = (layer is None or layer in shard.layers) and (expert is None or expert in shard.experts)
        if is_here:
            found[name] = part_of(name, source.tensors[name], shard)
    if config.tie_word_embeddings and shard.layout.tp > 1:
        found[HEAD] = part_of(HEAD, source.tensors[EMBEDDING], shard)
    return found


def part_of(name: str, info: TensorInfo, shard: Shard) -> TensorInfo:
    """The rows or columns of a tensor that the rank holds, as `Shard.part` cuts them."""
    if shard.layout.tp == 1:
        return info
    if name == HEAD:
        return _rows(info, shard.vocabulary[shard.lane])
    match = LAYER.match(name)
    if match is None:
        return info
    cut = shard.cut_of(match[2], match[3] == "weight")
    if cut is None:
        return info
    if cut.of_rows:
        return _rows(info, cut.part)
    # Formats that round their input have one more feature, see `SummedLinears`.
    more = isinstance(get_format(info.format), ActivationFormat)
    return _cut(info, (info.shape[0], rows_size(cut.part) + more))


def _rows(info: TensorInfo, rows: slice) -> TensorInfo:
    return _cut(info, (rows_size(rows), *info.shape[1:]))


def _cut(info: TensorInfo, shape: tuple[int, ...]) -> TensorInfo:
    return replace(info, shape=shape, size_bytes=info.size_bytes * prod(shape) // prod(info.shape))
