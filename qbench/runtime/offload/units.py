"""Units of weights that come and go together: the linears of a layer, one expert, the head."""

import importlib
from dataclasses import dataclass

from qbench.runtime.layers.linear import choose_linear
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.models import EMBEDDING, HEAD, ModelConfig, expected_tensors, split_name
from quant.source import Source, TensorInfo

HEAD_UNIT = "head"
ALIGNMENT = 64  # bytes: where a weight may begin for the kernels
PAGE = 4096  # bytes: where a direct read may begin and end, in the file and in memory


@dataclass(frozen=True, slots=True)
class PlacedLinear:
    """One packed weight [N, K] in its unit.

    name    of its tensor; "model.layers.0.mlp.up_proj.weight"
    start   byte in the unit
    """

    name: str
    format: str
    shape: tuple[int, int]
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Unit:
    """Linears in one range of the file. size_bytes: whole pages; layer, expert: its own, or None"""

    name: str
    linears: tuple[PlacedLinear, ...]
    size_bytes: int
    layer: int | None = None
    expert: int | None = None


def units_of(source: Source, config: ModelConfig, impl: str) -> list[Unit]:
    """Units of a model in the order in which a forward pass reads them.

    Weights that cpu_kernels do not pack are in no unit, nor are routers, and of latent attention its projections,
    whose heads are packed a second time: all of these stay in memory. An expert is a unit of its own.
    """
    members: dict[tuple[str, int | None, int | None], list[tuple[str, TensorInfo]]] = {}
    for name in expected_tensors(config):
        info = source.tensors[name]
        key = _unit_of(name, config)
        if key is not None and choose_linear(info.format, impl).is_packed:
            members.setdefault(key, []).append((name, info))
    units = [_placed(*key, tensors) for key, tensors in members.items()]
    return sorted(units, key=_order)


def streamable_units(source: Source, config: ModelConfig, impl: str) -> list[Unit]:
    """As `units_of`.

    raises   InputError for a machine without the kernels, compute without packed weights, and a head that is not packed
    """
    if not has_cpu_kernels() or impl not in ("auto", "exact"):
        raise InputError(
            "--memory streams weights in the layout of cpu_kernels; build them and use compute fast or exact"
        )
    units = units_of(source, config, impl)
    if HEAD_UNIT not in {unit.name for unit in units}:
        raise InputError(f"{source.spec}: cpu_kernels do not pack its head, so it cannot be streamed; quantize it")
    return units


def _order(unit: Unit) -> tuple[bool, int, int]:
    """The head last; a layer, then its experts."""
    return unit.layer is None, unit.layer or 0, -1 if unit.expert is None else unit.expert


def _unit_of(name: str, config: ModelConfig) -> tuple[str, int | None, int | None] | None:
    """Name, layer and expert of the unit that the tensor belongs to; None: it stays in memory."""
    if name == (EMBEDDING if config.tie_word_embeddings else HEAD):
        return HEAD_UNIT, None, None
    _, layer, expert = split_name(name)
    module = name.removesuffix("_proj.weight").removesuffix(".weight").rsplit(".", 1)[0]
    is_linear = name.endswith(".weight") and layer is not None and "norm" not in name.rsplit(".", 2)[1]
    if not is_linear or (config.mla and module.endswith(".self_attn")):
        return None
    if name.endswith(".gate.weight"):  # the router
        return None
    return (f"layer {layer}" if expert is None else f"layer {layer} expert {expert}"), layer, expert


def _placed(name: str, layer: int | None, expert: int | None, tensors: list[tuple[str, TensorInfo]]) -> Unit:
    packed_linear_bytes = importlib.import_module("cpu_kernels").packed_linear_bytes
    linears, start = [], 0
    for tensor, info in tensors:
        rows, row_size = info.shape
        size = packed_linear_bytes(info.format, (rows, row_size))
        linears.append(PlacedLinear(tensor, info.format, (rows, row_size), start, size))
        start = round_up(start + size, ALIGNMENT)
    return Unit(name, tuple(linears), round_up(start, PAGE), layer, expert)


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
