"""Divisions that a model has, by its layers, heads and experts, and the borders between ranks."""

from itertools import pairwise

from qbench.run.rank_layout import RankLayout
from quant.errors import InputError
from quant.models import ModelConfig
from quant.source import Source


def check_sizes(source: Source, config: ModelConfig, layout: RankLayout) -> None:
    """raises InputError for more ranks than layers, heads or experts, and for an architecture that cannot be cut"""
    if layout.pp > config.num_layers:
        raise InputError(
            f"pp={layout.pp} is more than the {config.num_layers} layers of {source.spec}; give at most that many"
        )
    if layout.tp > 1:
        _check_heads(source, config, layout)
    experts_of(source, config, layout, rank=0)


def experts_of(source: Source, config: ModelConfig, layout: RankLayout, rank: int) -> range:
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


def lanes_of_heads(config: ModelConfig) -> list[int]:
    """Values of tp that give every lane as many whole heads."""
    heads, kv_heads = config.num_heads, config.num_kv_heads
    return [n for n in range(1, heads + 1) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)]


def borders(size: int, unit: int, parts: int) -> list[slice]:
    """`size` features in as many ranges as equal as whole units of features allow; the last are the larger ones."""
    num_units = size // unit
    ends = [unit * (num_units * part // parts) for part in range(parts)] + [size]
    return [slice(start, stop) for start, stop in pairwise(ends)]
