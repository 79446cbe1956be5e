"""Seconds of a forward pass of a layout on some devices: memory, operations, and messages of latency and bandwidth.

Each part of a rank takes the longer of its bytes over the bandwidth and its operations over the rate. A lane sends its
values of an exchange to the other lanes one after the other: each message takes the link's latency and its bytes over
the bandwidth. Layers and messages that Python calls one by one take longer than those of one call of cpu_kernels.
Stages follow each other, and all ranks compute the head at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from qbench.measure.records.kept_ranks import DeviceRates, LinkRates
from qbench.plan.cluster.hosts import Cluster, Place
from qbench.plan.cluster.routed import Tokens, traveling
from qbench.plan.cluster.work import Moved, RankWork
from qbench.run.rank_layout import ALL_TO_ALL
from qbench.runtime.parallel.traffic import FLOAT_BYTES
from quant.json_data import JsonData
from quant.present import present


@dataclass(frozen=True, slots=True)
class PassTime(JsonData):
    """Seconds of a forward pass: of computation, of messages, and both"""

    compute_s: float
    exchange_s: float
    total_s: float


def pass_time(works: Sequence[RankWork], places: tuple[Place, ...], cluster: Cluster, tokens: Tokens) -> PassTime:
    """works: of the rank with most work in each stage; places: of every rank"""
    layout = works[0].layout
    compute_s = exchange_s = 0.0
    for stage, work in enumerate(works):
        own = places[stage * layout.num_lanes : (stage + 1) * layout.num_lanes]
        compute_s += max(_layers_s(work, _rates(cluster, place), tokens) for place in own)
        exchange_s += _lanes_s(work, cluster, own, tokens)
        if stage + 1 < len(works):
            exchange_s += _stage_s(work, cluster, places, tokens.total)
    if len(works) > 1:  # the last stage sends the wanted tokens to all others
        exchange_s += (len(works) - 1) * _stage_s(works[-2], cluster, places, tokens.batch)
    head = works[-1].head(tokens)
    compute_s += max(seconds(head, _rates(cluster, place)) + _rates(cluster, place).step_s for place in places)
    return PassTime(compute_s, exchange_s, compute_s + exchange_s)


def seconds(moved: Moved, rates: DeviceRates) -> float:
    return max(moved.num_bytes / rates.bandwidth, moved.operations / rates.operations)


def _rates(cluster: Cluster, place: Place) -> DeviceRates:
    return present(cluster.device(place).rates)


def _layers_s(work: RankWork, rates: DeviceRates, tokens: Tokens) -> float:
    return seconds(work.layers(tokens), rates) + work.config.num_layers * _layer_s(work, rates)


def _layer_s(work: RankWork, rates: DeviceRates) -> float:
    """Seconds of a layer as this division runs it; without a figure, those of the next simpler kind"""
    kinds = [rates.layer_s]
    kinds += [rates.called_layer_s] if work.is_called else []
    kinds += [rates.shared_layer_s] if work.layout.sp > 1 else []
    return [each for each in kinds if each is not None][-1]


def _lanes_s(work: RankWork, cluster: Cluster, lanes: tuple[Place, ...], tokens: Tokens) -> float:
    """Exchanges between the lanes of a stage."""
    name = cluster.worst_link(lanes)
    if name is None:
        return 0.0
    rates, others = present(cluster.links[name].rates), work.layout.num_lanes - 1
    sent = [values * tokens.total for values in work.exchanges.of_tokens]
    sent += [values * tokens.batch for values in work.exchanges.of_wanted]
    if work.layout.dispatch == ALL_TO_ALL:
        sent += traveling(work.config, work.layout, work.exchanges, tokens)
    called_s = rates.call_s * len(sent) if work.is_called or work.layout.dispatch == ALL_TO_ALL else 0.0
    return others * sum(message_s(rates, values) for values in sent) + called_s


def _stage_s(work: RankWork, cluster: Cluster, places: tuple[Place, ...], num_tokens: int) -> float:
    """One message with the hidden states of so many tokens from a stage to the next."""
    lanes, first = work.layout.num_lanes, work.layout.stage(work.rank) * work.layout.num_lanes
    names = {cluster.link_name(places[rank], places[rank + lanes]) for rank in range(first, first + lanes)}
    values = work.config.hidden_size * num_tokens
    links = [present(cluster.links[name].rates) for name in names]
    return max(message_s(rates, values) + rates.call_s for rates in links)


def message_s(rates: LinkRates, num_values: float) -> float:
    return rates.latency_s + FLOAT_BYTES * num_values / rates.bandwidth
