"""Time of a decode step by tensor and format, from models on this machine's kernels.

One model has all tensors in formats of middle size. Variants of its first layers have another format, in the layers or
outside them, and are timed in turn with the first layers themselves. The difference belongs to the tensors that
changed, by the number of their weights that a step reads:

    step(mix) = step(middle model) + sum over tensors of the difference for their format
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median

from qbench.measure.host.machine import last_level_cache_bytes
from qbench.progress import Progress
from qbench.run.options import RunOptions
from qbench.runtime.load import load_model
from qbench.search.document import mix_document
from qbench.search.sites import Site
from qbench.search.solve import Option
from qbench.sources.open import FirstLayers
from qbench.speed.speed_worker import TimedModel
from quant.job import make_job
from quant.models import EMBEDDING, ModelConfig
from quant.quantize import QuantizedSource
from quant.recipes.yaml_recipe import recipe_from
from quant.source import Source

MIDDLE_BITS = 4.5  # formats near it are in most mixes, so that few differences add up
STEPS = 16  # of a model in a round
DEPTH = 56  # tokens before them: a step is then in the middle of `qbench bench -p 0 -n 128`
ROUNDS = 21
WARM_UP = 3
CACHES = 2  # a variant reads this many times the last cache, if the whole model does: then it reads memory, too

Formats = Mapping[str, str]  # name of a site -> format


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a decode step of one sequence.

    middle  of the model of middle formats
    more    name of a site -> format -> how much more its products take than in the middle format
    """

    middle: float
    more: Mapping[str, Mapping[str, float]]

    def step(self, formats: Formats) -> float:
        """Seconds with these formats."""
        return self.middle + sum(self.more[name][fmt] for name, fmt in formats.items())


def measure_step_times(
    source: Source, sites: Sequence[Site], threads: int, clock: str = "wall", progress: Progress | None = None
) -> StepTimes:
    """Peak memory is the middle model; then its first layers, twice."""
    middle = {site.name: _nearest(site, source) for site in sites}
    step = measure_step(_rounded(source, sites, middle), threads, clock)
    part = FirstLayers(source, _layers_to_time(source, sites, middle))
    here = [site for site in sites if all(name in part.tensors for name in site.names)]
    base = _timed(_rounded(part, here, middle), threads, clock)
    more = {site.name: {middle[site.name]: 0.0} for site in sites}
    variants = _variants(sites, middle)
    for number, (fmt, changed) in enumerate(variants):
        if progress is not None:
            progress(number, len(variants), f"time {fmt}")
        timed = [site for site in changed if site in here]
        formats = middle | {site.name: fmt for site in timed}
        each = _difference(base, _timed(_rounded(part, here, formats), threads, clock))
        weight = sum(_weights_read(site, source) for site in timed)
        for site in changed:
            more[site.name][fmt] = each * _weights_read(site, source) / weight if weight else 0.0
    return StepTimes(step, more)


def measure_step(source: Source, threads: int, clock: str = "wall") -> float:
    """Seconds of a decode step of a model as it is."""
    step = _timed(source, threads, clock)
    for _ in range(WARM_UP):
        step()
    return median(step() for _ in range(ROUNDS))


def _difference(base: Callable[[], float], other: Callable[[], float]) -> float:
    """Seconds that the other takes longer; both in turn, so that a slow spell of the machine hits both."""
    other()  # to warm up
    return median(other() - base() for _ in range(ROUNDS))


def _timed(source: Source, threads: int, clock: str) -> Callable[[], float]:
    """Measures the seconds of a step when it is called."""
    model = TimedModel(load_model(source, RunOptions(threads=threads)), clock)
    limit = ModelConfig.of(source).max_positions
    depth = min(DEPTH, limit // 2)
    steps = min(STEPS, limit - depth)
    model.hold([[0] * depth], depth + steps)
    return lambda: model.seconds([[0] * steps], step=1) / steps


def _rounded(source: Source, sites: Sequence[Site], formats: Formats) -> Source:
    options = [Option(formats[site.name], "rtn", 0, 0.0) for site in sites]
    document = mix_document("timed", source, sites, options) | {"method": "rtn"}
    return QuantizedSource(make_job(source, recipe_from(document, "timed")))


def _variants(sites: Sequence[Site], middle: Formats) -> list[tuple[str, list[Site]]]:
    """Formats with the sites that get them together: in the layers or outside, and of one middle format."""
    groups: dict[tuple[bool, str], list[Site]] = {}
    for site in sites:
        groups.setdefault((site.layer is None, middle[site.name]), []).append(site)
    return [
        (fmt, [site for site in group if fmt in site.formats])
        for (_, own), group in groups.items()
        for fmt in dict.fromkeys(fmt for site in group for fmt in site.formats)
        if fmt != own
    ]


def _nearest(site: Site, source: Source) -> str:
    num_weights = sum(prod(source.tensors[name].shape) for name in site.names)
    return min(site.formats, key=lambda fmt: abs(8 * site.formats[fmt] / num_weights - MIDDLE_BITS))


def _weights_read(site: Site, source: Source) -> float:
    """Weights that a step multiplies; a look-up in a table takes no time that counts."""
    config = ModelConfig.of(source)
    if EMBEDDING in site.names and not config.tie_word_embeddings:
        return 0.0
    share = config.expert_share if site.is_experts else 1.0
    return share * sum(prod(source.tensors[name].shape) for name in site.names)


def _layers_to_time(source: Source, sites: Sequence[Site], formats: Formats) -> int:
    """First layers that have every kind of tensor, and that do not fit into the last cache, if the model does not."""
    num_layers = ModelConfig.of(source).num_layers
    sizes = [0] * num_layers
    for site in sites:
        if site.layer is not None:
            sizes[site.layer] += site.formats[formats[site.name]]
    kinds: list[set[str]] = [set() for _ in sizes]
    for site in sites:
        if site.layer is not None:
            kinds[site.layer].add(site.name.partition(f".{site.layer}.")[2])
    wanted, total, missing = CACHES * last_level_cache_bytes(), 0, set().union(*kinds)
    for index, size in enumerate(sizes):
        total, missing = total + size, missing - kinds[index]
        if total >= wanted and not missing:
            return index + 1
    return num_layers
