"""Statistics on disk: a part for each decoder layer while a run goes on, one file for all of them afterwards.

The file is safetensors. Its tensor "about" holds JSON as bytes: the subject of the calibration, and for each layer the
groups of weights that share an input. The statistics of group G of layer L are `L.G.absmax`, `L.G.sum_squares`,
`L.G.hessian` and `L.G.sample`; the ranges of keys and values are `L.k_absmax` and `L.v_absmax`. Layer num_layers is the
head.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from quant.atomic import atomic_file
from quant.calibrated import CalibrationKey
from quant.calibration.coverage import FIELD_OF
from quant.calibration.ready import ReadyStatistics
from quant.errors import InputError
from quant.json_data import JsonData
from quant.qtensor import QTensor
from quant.safetensors.writer import Entry, safetensors_writer, save_arrays
from quant.stats import InputStats, KVStats, LayerStats, Names, Needs

SCHEMA = 1
ABOUT = "about"
PART = "stats-{}.safetensors"
FIELDS = tuple(FIELD_OF.values())
EVERYTHING = frozenset(FIELD_OF)
ONE_FILE = 1 << 62  # bytes: never split


@dataclass(frozen=True, slots=True)
class StatsGroup(JsonData):
    """Weights that share an input, and how many tokens that input had."""

    names: tuple[str, ...]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class LayerHead(JsonData):
    """The entry of a layer in "about". extra_tokens: expert -> tokens, see `LayerStats`"""

    groups: tuple[StatsGroup, ...]
    extra_tokens: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StatsHead(JsonData):
    """The entry of a file in "about"."""

    json_flat = ("about",)

    schema: int
    about: CalibrationKey
    layers: tuple[LayerHead, ...]


def write_part(folder: Path, index: int, stats: LayerStats) -> None:
    groups, arrays = [], {}
    for number, (names, inputs) in enumerate(_groups(stats)):
        groups.append(StatsGroup(tuple(names), inputs.num_tokens))
        fields = {field: getattr(inputs, field) for field in FIELDS}
        arrays |= {f"{index}.{number}.{field}": array for field, array in fields.items() if array is not None}
    if stats.kv is not None:
        arrays |= {f"{index}.k_absmax": stats.kv.k_absmax, f"{index}.v_absmax": stats.kv.v_absmax}
    extra = {str(expert): count for expert, count in stats.extra_tokens.items()}
    arrays[ABOUT] = _as_bytes(LayerHead(tuple(groups), extra))
    save_arrays({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / PART.format(index))


def write_stats(path: Path, folder: Path, num_parts: int, about: CalibrationKey) -> None:
    """One file of the parts in `folder`; a tensor at a time.

    about    all that decides the statistics: a file is read again only if this is equal
    raises   InputError where the file cannot be written
    """
    there = [index for index in range(num_parts) if has_part(folder, index)]  # a head that stays as it is has no part
    parts = [safe_open(folder / PART.format(index), "np") for index in there]
    layers = tuple(LayerHead.from_json(_json(part.get_tensor(ABOUT))) for part in parts)
    head = _as_bytes(StatsHead(SCHEMA, about, layers))
    names = [[name for name in part.keys() if name != ABOUT] for part in parts]
    entries = [_entry(part, name) for part, own in zip(parts, names, strict=True) for name in own]
    with atomic_file(path, replaces=is_stats_file, needed_bytes=sum(entry.size_bytes for entry in entries)) as temp:
        joined = folder / "stats"
        joined.mkdir(exist_ok=True)
        with safetensors_writer(joined, [[Entry(ABOUT, "U8", head.shape), *entries]], ONE_FILE) as writer:
            writer.write(ABOUT, head)
            for part, own in zip(parts, names, strict=True):
                for name in own:
                    writer.write(name, part.get_tensor(name))
        shutil.move(joined / "model.safetensors", temp)


def check_place(path: Path) -> None:
    """raises InputError unless a file of statistics is there, or may be made there: before a long run, not after it"""
    if path.exists():
        StatsFile(path)
    elif not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")


class StatsFile(ReadyStatistics):
    """`quant.calibration.streaming.Statistics` from a file, or from the parts of a run that is not over.

    raises   InputError for a file that is no such file
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = safe_open(path, "np")
            document = _json(self._file.get_tensor(ABOUT))
            schema = document["schema"]
            if schema != SCHEMA:
                raise InputError(f"{path}: statistics of schema {schema}, expected {SCHEMA}; calibrate again")
            head = StatsHead.from_json(document)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: no file of calibration statistics; write to another name") from error
        self.about, self._layers = head.about, head.layers

    def check(self, about: CalibrationKey) -> None:
        """raises InputError unless the file is of this model and calibration"""
        if unlike := about.unlike(self.about):
            raise InputError(
                f"{self.path} holds statistics of another {', '.join(unlike)}; remove it or write to another name"
                + (
                    " (--calibrate-on original makes statistics that serve every recipe)"
                    if unlike == ["recipe"]
                    else ""
                )
            )

    def layer(self, index: int, tensors: Mapping[str, QTensor], needs: Needs) -> LayerStats:
        return self._read(index, needs)

    def head(self, norm: Mapping[str, QTensor], names: Names, needs: Needs) -> LayerStats:
        return self._read(len(self._layers) - 1, needs)

    def _read(self, index: int, needs: Needs) -> LayerStats:
        return _layer_stats(self._file, self._layers[index], index, needs)

    @property
    def num_parts(self) -> int:
        return len(self._layers)


def has_part(folder: Path, index: int) -> bool:
    return (folder / PART.format(index)).exists()


def read_part(folder: Path, index: int) -> LayerStats:
    """The content of a part of `write_part`, without Hessians and samples."""
    with safe_open(folder / PART.format(index), "np") as part:
        return _layer_stats(part, LayerHead.from_json(_json(part.get_tensor(ABOUT))), index, lambda names: frozenset())


def _layer_stats(file: safe_open, row: LayerHead, index: int, needs: Needs) -> LayerStats:
    """row: the file's own head of the layer"""
    inputs: dict[str, InputStats] = {}
    there = set(file.keys())
    for number, group in enumerate(row.groups):
        names = group.names
        wanted = {"absmax", "sum_squares", *(FIELD_OF[need] for need in needs(names))}
        keys = {field: f"{index}.{number}.{field}" for field in FIELDS}
        read = {field: file.get_tensor(key) for field, key in keys.items() if field in wanted and key in there}
        absmax, hessian, sample = (read.get(field) for field in ("absmax", "hessian", "sample"))
        inputs |= dict.fromkeys(names, InputStats(group.num_tokens, absmax, read["sum_squares"], hessian, sample))
    kv = None
    if f"{index}.k_absmax" in there:
        kv = KVStats(*(file.get_tensor(f"{index}.{each}_absmax") for each in "kv"))
    return LayerStats(inputs, kv, {int(expert): count for expert, count in row.extra_tokens.items()})


def is_stats_file(path: Path) -> bool:
    try:
        StatsFile(path)
    except InputError:
        return False
    return True


def _groups(stats: LayerStats) -> list[tuple[list[str], InputStats]]:
    """Names of the weights that share an input, with its statistics."""
    groups: dict[int, tuple[list[str], InputStats]] = {}
    for name, inputs in stats.inputs.items():
        groups.setdefault(id(inputs), ([], inputs))[0].append(name)
    return list(groups.values())


def _entry(part: safe_open, name: str) -> Entry:
    piece = part.get_slice(name)
    return Entry(name, piece.get_dtype(), tuple(piece.get_shape()))


def _as_bytes(head: LayerHead | StatsHead) -> np.ndarray:
    return np.frombuffer(json.dumps(head.to_json()).encode(), dtype=np.uint8)


def _json(array: np.ndarray) -> dict:
    return json.loads(array.tobytes())
