"""`plan_cluster`: every division of a model that the devices of a cluster allow, ranked, and why others do not fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from qbench.plan.cluster.costs import PassTime, pass_time
from qbench.plan.cluster.hosts import Cluster, Place
from qbench.plan.cluster.routed import Tokens
from qbench.plan.cluster.work import RankWork, Whole
from qbench.plan.plan import PlanCase, planned_context, planned_source
from qbench.run.rank_layout import ALL_TO_ALL, CUTS, RankLayout
from qbench.runtime.parallel.traffic import expected_traffic
from qbench.sources import open_source
from quant.errors import InputError
from quant.json_data import JsonData
from quant.models import ModelConfig
from quant.present import present
from quant.source import Source

THROUGHPUT, LATENCY = "throughput", "latency"
CHUNK = 512  # tokens of each prompt per forward pass, for the memory of activations


@dataclass(frozen=True, slots=True)
class ClusterCase(JsonData):
    """context: tokens per sequence; None: as `planned_context`; batch: sequences per copy of the model"""

    goal: str
    recipe: str | None = None
    kv_format: str | None = None
    context: int | None = None
    batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPlan(JsonData):
    """One layout.

    copies            copies of the model, each on num_ranks devices
    decode, prefill   of the slowest copy: a step at the full context, and all prompts
    tok_s             decoded by all copies
    memory_bytes      of the rank that needs most
    bytes_per_token, messages_per_step   of all ranks of a copy, in decode; the formula that a run is compared with
    links             that its messages take
    measured_s        the decode step of a run; ratio: predicted over measured
    """

    layout: RankLayout
    copies: int
    decode: PassTime
    prefill: PassTime
    tok_s: float
    memory_bytes: int
    bytes_per_token: float
    messages_per_step: float
    links: list[str]
    measured_s: float | None = None
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal(JsonData):
    """A layout that is illegal or does not fit.

    reason   in one line
    """

    layout: RankLayout
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterPlan(JsonData):
    """layouts: the best first"""

    model: str
    case: ClusterCase
    cluster: Cluster
    layouts: list[LayoutPlan]
    refused: list[Refusal]


def plan_cluster(model: str, case: ClusterCase, cluster: Cluster, source: Source | None = None) -> ClusterPlan:
    """cluster: with all rates; source: the model with its recipe and KV format; None: as planned from the case

    raises   InputError for an unknown model, recipe or format, a context past the model's, and a model that fits in no
             way, with the reason of the layout that needs least per device
    """
    if source is None:
        source = planned_source(open_source(model), PlanCase(case.recipe, case.kv_format))
    config = ModelConfig.of(source)
    case = replace(case, context=planned_context(config, case.context, model))
    whole = Whole.of(source)
    layouts: list[LayoutPlan] = []
    refused: list[Refusal] = []
    for layout in candidates(config, len(cluster.places)):
        try:
            layouts.append(_planned(whole, case, cluster, layout))
        except InputError as error:
            refused.append(Refusal(layout, str(error)))
    if not layouts:
        reasons = "; ".join(f"{each.layout}: {each.reason}" for each in refused[-1:])
        raise InputError(f"no division of {model} fits the cluster ({len(refused)} tried), such as {reasons}")
    return ClusterPlan(model, case, cluster, sorted(layouts, key=_order(case.goal)), refused)


def _order(goal: str):
    """The shortest step for latency, most tokens per second for throughput; then the shorter prefill, fewer ranks."""

    def key(row: LayoutPlan) -> tuple[float, float, int]:
        first = row.decode.total_s if goal == LATENCY else -row.tok_s
        return first, row.prefill.total_s, row.layout.num_ranks

    return key


def candidates(config: ModelConfig, num_devices: int) -> Iterator[RankLayout]:
    """Layouts of at most so many ranks: numbers that divide the devices evenly, and powers of two."""
    for num_ranks in range(1, num_devices + 1):
        if num_devices % num_ranks and num_ranks & (num_ranks - 1):
            continue
        for pp in range(1, num_ranks + 1):
            if num_ranks % pp:
                continue
            lanes = num_ranks // pp
            if lanes == 1:
                yield RankLayout(pp=pp)
                continue
            for cut in CUTS:
                yield RankLayout(tp=lanes, pp=pp, cut=cut)
            if config.moe is not None:
                yield RankLayout(ep=lanes, pp=pp)
                if pp == 1:
                    yield RankLayout(ep=lanes, dispatch=ALL_TO_ALL)
            yield RankLayout(sp=lanes, pp=pp)


def _planned(whole: Whole, case: ClusterCase, cluster: Cluster, layout: RankLayout) -> LayoutPlan:
    """raises InputError for an illegal layout, and one that fits on no devices"""
    config, context = whole.config, present(case.context)
    if layout.sp > 1 and config.mla is not None:
        raise InputError(f"sp={layout.sp} does not divide the latents of a {config.architecture.name} yet; use pp")
    ranks = [RankWork(whole, layout, rank) for rank in range(layout.num_ranks)]
    needs = [rank.memory_bytes(context, case.batch, min(context, CHUNK)) for rank in ranks]
    fitting = list(_fitting(cluster, layout, needs))
    if not fitting:
        raise InputError(_too_large(cluster, layout, ranks, needs, case))
    # The last lane has the largest part: `borders` gives it the rest of the division.
    works = ranks[layout.num_lanes - 1 :: layout.num_lanes]
    decode, prefill = Tokens(case.batch, 1, context - 1), Tokens(case.batch, context, 0)
    steps = {places: pass_time(works, places, cluster, decode) for places in set(fitting)}
    prompts = [pass_time(works, places, cluster, prefill) for places in steps]
    sent = [
        expected_traffic(
            layout, rank, work.traffic(case.batch), exchanges=work.exchanges, hidden_size=config.hidden_size
        )
        for rank, work in enumerate(ranks)
    ]
    return LayoutPlan(
        layout=layout,
        copies=len(fitting),
        decode=max(steps.values(), key=lambda step: step.total_s),
        prefill=max(prompts, key=lambda step: step.total_s),
        tok_s=sum(case.batch / steps[places].total_s for places in fitting),
        memory_bytes=max(needs),
        bytes_per_token=sum(num_bytes for num_bytes, _ in sent) / case.batch,
        messages_per_step=sum(messages for _, messages in sent),
        links=sorted({name for places in steps for name in _links(cluster, layout, places)}),
    )


def _fitting(cluster: Cluster, layout: RankLayout, needs: list[int]) -> Iterator[tuple[Place, ...]]:
    """Devices of every copy that fits; hosts are numbered from the copy's first."""
    for first in range(0, len(cluster.places) - layout.num_ranks + 1, layout.num_ranks):
        places = cluster.places[first : first + layout.num_ranks]
        rooms = [cluster.device(place).memory_bytes for place in places]
        if all(need <= room for need, room in zip(needs, rooms, strict=True)):
            yield tuple(replace(place, host=place.host - places[0].host) for place in places)


def _links(cluster: Cluster, layout: RankLayout, places: tuple[Place, ...]) -> set[str]:
    """Links between lanes, and between stages, of one copy."""
    lanes = layout.num_lanes
    stages = [places[first : first + lanes] for first in range(0, len(places), lanes)]
    within = {cluster.link_name(a, b) for stage in stages for i, a in enumerate(stage) for b in stage[:i]}
    return within | {cluster.link_name(a, b) for a, b in zip(places, places[lanes:], strict=False)}


def _too_large(cluster: Cluster, layout: RankLayout, ranks: list[RankWork], needs: list[int], case: ClusterCase) -> str:
    rank = max(range(len(needs)), key=needs.__getitem__)
    work, room = ranks[rank], max(device.memory_bytes for device in cluster.devices.values())
    kv = work.kv_bytes(present(case.context), case.batch)
    parts = f"weights {work.weight_bytes:,}, keys and values {kv:,}"
    return f"rank {rank} needs {needs[rank]:,} bytes ({parts}), its device has at most {room:,}"
