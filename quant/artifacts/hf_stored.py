"""From a checkpoint's tensors to canonical ones and back: stacks, matrices the other way round, shifted norms."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.formats.base import rows_of
from quant.models import ModelConfig, expected_tensors
from quant.models.stored import SHIFTED, StoredAt, rows_of_stack
from quant.qtensor import QTensor, concat_rows
from quant.source import Source, TensorInfo


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a checkpoint. members: the canonical tensors that it holds, in order; info: of all of it"""

    at: StoredAt
    members: tuple[str, ...]
    info: TensorInfo

    @property
    def is_transposed(self) -> bool:
        """Whether a float matrix is stored transposed; a quantized one is stored as its format defines."""
        return self.at.transposed and self.info.format in ("f32", "f16", "bf16")

    @property
    def file_shape(self) -> tuple[int, ...]:
        return self.info.shape[::-1] if self.is_transposed else self.info.shape


def stored_tensors(source: Source) -> dict[str, StoredTensor]:
    """Name in the checkpoint -> the source's tensors in it, in their order.

    raises   InputError where tensors of one stack have unlike formats, or one that needs a scale for each
    """
    expected = expected_tensors(ModelConfig.of(source))
    members: dict[str, list[str]] = {}
    for name in source.tensors:
        members.setdefault(expected[name].stored.name, []).append(name)
    stored = {}
    for in_file, names in members.items():
        at = expected[names[0]].stored
        stored[in_file] = StoredTensor(at, tuple(names), _info_of_all(source, at, names))
    return stored


def to_file(stored: StoredTensor, qtensors: Sequence[QTensor]) -> QTensor:
    """The checkpoint's tensor, made from its members; a float matrix that is stored transposed is left as it is."""
    if stored.at.offset:
        return _shifted(qtensors[0], -stored.at.offset)
    if len(qtensors) == 1:
        return qtensors[0]
    places = np.concatenate(rows_of_stack(stored.at.sizes, stored.at.num_heads))
    return concat_rows(qtensors).take_rows(np.argsort(places))


def from_file(at: StoredAt, qtensor: QTensor) -> QTensor:
    """The canonical tensor out of the whole that the checkpoint holds, rows out x in."""
    if at.offset:
        return _shifted(qtensor, at.offset)
    return qtensor if at.place is None else qtensor.take_rows(at.rows)


def info_from_file(at: StoredAt, info: TensorInfo, shape: tuple[int, ...]) -> TensorInfo:
    """Info of the canonical tensor of `shape`, if `info` describes the checkpoint's whole tensor."""
    if at.offset:
        return TensorInfo(shape, SHIFTED, get_format(SHIFTED).size_bytes(shape))
    if at.place is None:
        return info
    shared_bytes = _shared_bytes(info)
    own = (info.size_bytes - shared_bytes) // info.shape[0] * shape[0]
    return replace(info, shape=shape, size_bytes=own + shared_bytes)


def transposed(qtensor: QTensor) -> QTensor:
    """A float matrix [N, K] as [K, N]."""
    rows, _ = rows_of(qtensor.shape)
    blocks = qtensor.parts["blocks"]
    width = blocks.shape[1] // qtensor.shape[1]  # bytes of a number
    numbers = blocks.reshape(*rows, qtensor.shape[1], width)
    turned = np.ascontiguousarray(numbers.transpose(1, 0, 2)).reshape(qtensor.shape[1], -1)
    return QTensor(qtensor.format, qtensor.shape[::-1], {"blocks": turned})


def _shifted(qtensor: QTensor, offset: float) -> QTensor:
    return get_format(SHIFTED).quantize_ref(dequantize(qtensor) + np.float32(offset))


def _info_of_all(source: Source, at: StoredAt, names: Sequence[str]) -> TensorInfo:
    infos = [source.tensors[name] for name in names]
    if at.offset:
        return info_from_file(at, infos[0], infos[0].shape)
    formats = sorted({info.format for info in infos})
    if len(formats) > 1:
        raise InputError(
            f"{at.name} holds {len(names)} tensors of {', '.join(formats)}, and a checkpoint gives it one format; "
            f"give all of them one (first: {names[0]})"
        )
    fmt = get_format(formats[0])
    if len(names) > 1 and not fmt.rows_stand_alone:
        raise InputError(
            f"{at.name} holds {len(names)} tensors of {formats[0]}, each with a scale of its own, and a checkpoint "
            f"gives it one; choose a scale per channel, as w8a8 has (first: {names[0]})"
        )
    shape = (sum(info.shape[0] for info in infos), *infos[0].shape[1:])
    own = sum(info.size_bytes - _shared_bytes(info) for info in infos)
    return replace(infos[0], shape=shape, size_bytes=own + _shared_bytes(infos[0]))


def _shared_bytes(info: TensorInfo) -> int:
    return sum(int(np.prod(part.shape, dtype=np.int64)) * np.dtype(part.dtype).itemsize for part in info.shared)


def without_prefix(names: Iterable[str], prefix: str) -> bool:
    """Whether a file's names lack the architecture's prefix, as those of a model saved without its head do."""
    return bool(prefix) and not any(name.startswith(prefix) for name in names)
