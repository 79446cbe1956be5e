"""make_shard: the part of a model that a rank holds; illegal cuts are refused with the legal ones."""

from itertools import pairwise
from math import lcm

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
    experts = _experts(source, config, layout, rank)
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


def check_sizes(source: Source, config: ModelConfig, layout: RankLayout) -> None:
    """raises InputError for more ranks than layers, heads or experts, and for an architecture that cannot be cut"""
    if layout.pp > config.num_layers:
        raise InputError(
            f"pp={layout.pp} is more than the {config.num_layers} layers of {source.spec}; give at most that many"
        )
    if layout.tp > 1:
        _check_heads(source, config, layout)
    _experts(source, config, layout, rank=0)


COLUMNS_OF = {
    axis: tuple(f".{name}.weight" for name, of in COLUMNS.items() if of == axis) for axis in ("heads", "features")
}


def borders(size: int, unit: int, parts: int) -> list[slice]:
    """`size` features in as many ranges as equal as whole units of features allow; the last are the larger ones."""
    num_units = size // unit
    ends = [unit * (num_units * part // parts) for part in range(parts)] + [size]
    return [slice(start, stop) for start, stop in pairwise(ends)]


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


def _experts(source: Source, config: ModelConfig, layout: RankLayout, rank: int) -> range:
    """Routed experts of one rank. raises InputError for more lanes than experts, and for a model without any"""
    num_experts = 0 if config.moe is None else config.moe.num_experts
    if layout.ep == 1:
        return range(num_experts)
    if num_experts == 0:
        raise InputError(f"ep={layout.ep} divides experts, and {source.spec} has none; use tp or pp")
    if layout.ep > num_experts:
        raise InputError(
            f"ep={layout.ep} is more than the {num_experts} experts of {source.spec}; give at most that many"
        )
    own = borders(num_experts, 1, layout.ep)[layout.lane(rank)]
    return range(own.start, own.stop)


def _check_heads(source: Source, config: ModelConfig, layout: RankLayout) -> None:
    tp, heads, kv_heads = layout.tp, config.num_heads, config.num_kv_heads
    if config.mla is not None or config.moe is not None or config.attention_rule(0).has_alibi:
        raise InputError(f"tp does not cut a {config.architecture.name} yet; use pp, which cuts between its layers")
    legal = lanes_of_heads(config)
    if tp not in legal:
        raise InputError(
            f"tp={tp} does not divide the {heads} heads and {kv_heads} key-value heads of {source.spec}; "
            f"give one of {', '.join(map(str, legal))}, or pp"
        )


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


def lanes_of_heads(config: ModelConfig) -> list[int]:
    """Values of tp that give every lane as many whole heads."""
    heads, kv_heads = config.num_heads, config.num_kv_heads
    return [n for n in range(1, heads + 1) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)]
