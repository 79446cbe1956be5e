"""make_shard: the part of a model that a rank holds; illegal cuts are refused with the legal ones."""

from math import lcm

from qbench.run.divisions import borders, check_sizes, experts_of, lanes_of_heads
from qbench.run.rank_layout import GATHER, RankLayout
from qbench.runtime.parallel.shard import COLUMNS, LAYER, Shard, rows_size
from quant.errors import InputError
from quant.formats import get_format
from quant.models import ModelConfig
from quant.source import Source, TensorInfo


def make_shard(source: Source, config: ModelConfig, layout: RankLayout, rank: int) -> Shard:
    """The part of one rank.

    raises   InputError for more ranks than layers or heads, an architecture that cannot be cut, and a cut through a
             group of weights, with the alternatives
    """
    check_sizes(source, config, layout)
    experts = experts_of(source, config, layout, rank)
    layers = borders(config.num_layers, 1, layout.pp)[layout.stage(rank)]
    unit = 1 if layout.cut == GATHER else column_unit(source, COLUMNS_OF["features"])
    shard = Shard(
        layout,
        rank,
        range(layers.start, layers.stop),
        {**_head_ranges(config, layout.tp), "features": borders(config.ffn_size, unit, layout.tp)},
        borders(config.hidden_size, 1, layout.tp),
        borders(config.vocab_size, 1, layout.tp),
        experts,
    )
    if layout.tp > 1 and layout.cut != GATHER:
        _check_columns(source, config, layout, shard)
    return shard


COLUMNS_OF = {
    axis: tuple(f".{name}.weight" for name, of in COLUMNS.items() if of == axis) for axis in ("heads", "features")
}


def column_unit(source: Source, endings: tuple[str, ...]) -> int:
    """Input features that only a cut between them leaves whole, of the tensors whose names end so."""
    units = [_unit(info) for name, info in source.tensors.items() if name.endswith(endings)]
    return lcm(*units) if units else 1


def _unit(info: TensorInfo) -> int:
    return info.shape[1] if info.has_shared("g_idx") else get_format(info.format).block_size


def _head_ranges(config: ModelConfig, tp: int) -> dict[str, list[slice]]:
    """Rows of queries, and of keys and values, of every lane; lanes that outnumber the latter's heads share them."""
    dim, heads_per_lane = config.head_dim, config.num_heads // tp
    heads = [slice(lane * heads_per_lane * dim, (lane + 1) * heads_per_lane * dim) for lane in range(tp)]
    num_kv_heads = max(1, config.num_kv_heads // tp)
    firsts = [lane * config.num_kv_heads // tp for lane in range(tp)]
    return {"heads": heads, "kv_heads": [slice(first * dim, (first + num_kv_heads) * dim) for first in firsts]}


def _check_columns(source: Source, config: ModelConfig, layout: RankLayout, shard: Shard) -> None:
    for name, info in source.tensors.items():
        match = LAYER.match(name)
        if match is None or match[2] not in COLUMNS or match[3] != "weight":
            continue
        axis, unit = COLUMNS[match[2]], _unit(info)
        ranges = shard.ranges[axis]
        if any(each.start % unit or each.stop % unit or not rows_size(each) for each in ranges):
            legal = legal_lanes(config, axis, unit)
            raise InputError(
                f"tp={layout.tp} would cut {name}, {info.format} with groups of {unit} of its {info.shape[1]} "
                f"features, at {', '.join(str(each.start) for each in ranges[1:])}; legal: "
                f"{' or '.join(f'tp={n}' for n in legal)}, tp={layout.tp},cut=gather, or pp={layout.tp}"
            )


def legal_lanes(config: ModelConfig, axis: str, unit: int) -> list[int]:
    """Values of tp that cut no group of `unit` features on this axis, under cut "sum"."""
    fits = lanes_of_heads(config)
    if axis == "features":
        return [n for n in fits if config.ffn_size % unit == 0 and config.ffn_size // unit >= n]
    return [n for n in fits if n == 1 or (config.num_heads // n * config.head_dim) % unit == 0]
