"""`rank_bench`: the speed of one model on several ranks, and the traffic between them, counted and timed."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import torch

from qbench.calibration.open_subject import open_subject
from qbench.measure.host.memory import peak_rss_bytes, reset_peak_rss
from qbench.measure.metrics import Facts, Memory, Metrics
from qbench.measure.rank_figures import Bubble, Exchange, ExpertLoad, RankFigures
from qbench.measure.speed_figures import Speed, SpeedFigures
from qbench.progress import Progress
from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from qbench.run.work import SpeedSizes, SpeedWork
from qbench.runtime import load_model
from qbench.runtime.parallel import RankModel
from qbench.runtime.parallel.traffic import Exchanges, Traffic, bubble, expected_bubble, expected_traffic
from qbench.speed.interleaved import interleave, random_tokens
from qbench.speed.rounds import PHASES, Rounds
from qbench.speed.speed import cached_statistics
from qbench.speed.speed_worker import TimedModel
from quant.json_data import JsonData
from quant.models import ModelConfig
from quant.present import present


@dataclass(frozen=True, slots=True)
class BenchLayout(RankLayout):
    """A layout in a row whose key `pp` is the number of tokens of a prompt."""

    json_keys: ClassVar[Mapping[str, str]] = {"pp": "pp_stages"}


@dataclass(frozen=True, slots=True)
class RankSpeed(JsonData):
    """One case. weight_bytes, kv_bytes, peak_rss_bytes: of every rank; threads of `facts` are those of a rank

    link  between the ranks, one of qbench.run.rank_layout.LINKS
    """

    json_flat: ClassVar[tuple[str, ...]] = ("facts", "layout", "sizes", "figures")

    facts: Facts
    layout: BenchLayout
    link: str
    sizes: SpeedSizes
    figures: SpeedFigures
    exchanges: dict[str, Exchange]
    weight_bytes: list[int]
    kv_bytes: list[int]
    peak_rss_bytes: list[int]


def rank_bench(
    spec: str, cases: Sequence[SpeedWork], options: RunOptions, progress: Progress | None = None
) -> Iterator[RankSpeed]:
    """One row per case, equal on all ranks except the times, which are those of rank 0.

    cases    with a fixed number of repetitions: the ranks must agree on it
    raises   InputError as `load_model`, and for more tokens than the model's context holds
    """
    subject = open_subject(spec, options, progress)
    for case in cases:
        case.check_context(ModelConfig.of(subject.source).max_positions)
    model = load_model(subject.source, subject.options)
    assert isinstance(model, RankModel)
    ranks, layout = model.ranks, options.layout
    for case in cases:
        figures, _ = time_ranks(model, case, threads=subject.threads, progress=progress)
        exchanges = {phase: measure_exchange(model, case, phase) for phase in PHASES if getattr(case, phase)}
        about = ranks.meeting.tell("memory", json.dumps([model.weight_bytes, figures.kv_bytes_held, peak_rss_bytes()]))
        weights, caches, peaks = zip(*map(json.loads, about), strict=True)
        yield RankSpeed(
            facts=subject.facts(model.impls),
            layout=BenchLayout(**{field.name: getattr(layout, field.name) for field in fields(layout)}),
            link=ranks.link.name,
            sizes=case.sizes,
            figures=figures,
            exchanges=exchanges,
            weight_bytes=list(weights),
            kv_bytes=list(caches),
            peak_rss_bytes=list(peaks),
        )


class TimedRanks(TimedModel):
    """Every rank has the times of rank 0. With times of their own, ranks would see warm-ups of different lengths, and
    one would stop while another waits for it.
    """

    def seconds(self, tokens: list[list[int]], step: int) -> float:
        return self.model.ranks.of_first(super().seconds(tokens, step))


def time_ranks(
    model: RankModel, case: SpeedWork, *, threads: int = 1, progress: Progress | None = None
) -> tuple[SpeedFigures, Rounds]:
    """As `time_model`, on every rank of the model at once."""
    timed = TimedRanks(model)
    rounds = interleave([timed], case, threads=threads, progress=progress)
    return cached_statistics(case, rounds, 0, present(timed.cache)), rounds


def bench_on_ranks(spec: str, case: SpeedWork, options: RunOptions, progress: Progress | None = None) -> Metrics:
    """One case as the row of a sweep has it; every rank calls it, and memory is that of the largest rank."""
    start, is_reset = time.perf_counter(), reset_peak_rss()
    (row,) = rank_bench(spec, [case], options, progress)
    return Metrics(
        facts=row.facts,
        speed=Speed(
            context=case.longest, batch=case.batch, pp=case.pp, tg=case.tg, depth=case.depth, figures=row.figures
        ),
        memory=Memory(peak_rss_bytes=max(row.peak_rss_bytes), peak_rss_since="load" if is_reset else "start"),
        ranks=RankFigures(row.link, row.exchanges, row.weight_bytes, row.kv_bytes, row.peak_rss_bytes),
        seconds=time.perf_counter() - start,
    )


def measure_exchange(model: RankModel, case: SpeedWork, phase: str) -> Exchange:
    """The traffic of the phase, measured again after its depth is held."""
    timed, ranks = TimedModel(model), model.ranks
    tokens = torch.from_numpy(random_tokens(timed.vocab_size, case))
    timed.hold(tokens[:, : case.depth].tolist(), case.longest)
    count = case.pp if phase == "pp" else case.tg
    ranks.traffic.restart()
    return exchange_of(model, timed.seconds(tokens[:, case.depth :][:, :count].tolist(), count if phase == "pp" else 1))


def exchange_of(model: RankModel, seconds: float | None = None) -> Exchange:
    """The traffic of all ranks since their counts restarted, `seconds` ago; None: without times; every rank calls it"""
    ranks = model.ranks
    tell = ranks.meeting.tell
    of_ranks = [Traffic.from_json(json.loads(text)) for text in tell("traffic", json.dumps(ranks.traffic.to_json()))]
    texts = tell("exchanges", json.dumps(model.exchanges.to_json()))
    exchanges = [Exchanges.from_json(json.loads(text)) for text in texts]
    expected = [
        expected_traffic(ranks.layout, rank, traffic, exchanges=exchanges[rank], hidden_size=model.config.hidden_size)
        for rank, traffic in enumerate(of_ranks)
    ]
    num_tokens, num_passes = of_ranks[0].num_tokens + of_ranks[0].num_apart, of_ranks[0].num_passes
    found = Exchange(
        bytes_per_token=sum(each.num_bytes for each in of_ranks) / num_tokens,
        messages_per_pass=sum(each.num_messages for each in of_ranks) / num_passes,
        expected_bytes_per_token=sum(num_bytes for num_bytes, _ in expected) / num_tokens,
        expected_messages_per_pass=sum(messages for _, messages in expected) / num_passes,
        share=ranks.traffic.seconds / seconds if seconds else 0.0,
    )
    if ranks.layout.ep > 1:
        found = replace(found, experts=expert_load(of_ranks, ranks.layout))
    return _with_bubble(found, ranks.layout, of_ranks) if seconds else found


def expert_load(of_ranks: Sequence[Traffic], layout: RankLayout) -> ExpertLoad:
    """The pairs of each lane, over all its stages, and how unequal they are"""
    pairs = [sum(each.num_pairs for each in of_ranks[lane :: layout.ep]) for lane in range(layout.ep)]
    return ExpertLoad(pairs, max(pairs) * layout.ep / sum(pairs))


def _with_bubble(found: Exchange, layout: RankLayout, of_ranks: Sequence[Traffic]) -> Exchange:
    """With the figures that only stages without lanes have"""
    if layout.pp == 1 or layout.num_lanes > 1:
        return found
    parts = of_ranks[0].num_parts / of_ranks[0].num_passes
    seconds = [each.layer_seconds for each in of_ranks]
    expected = expected_bubble([1.0] * layout.pp, parts), expected_bubble(seconds, parts)
    exchanged = sum(each.seconds for each in of_ranks) / sum(each.stage_seconds for each in of_ranks)
    return replace(found, bubble=Bubble(parts, bubble(of_ranks), *expected, exchanged))
