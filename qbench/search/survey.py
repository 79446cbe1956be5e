"""One pass over the model that measures the cost of each format per site: errors per layer, and probes on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qbench.calibration.arithmetic import DECODER_IMPL
from qbench.progress import Progress
from qbench.runtime.streamed import StreamedDecoder
from qbench.search.errors import METHODS, NEEDED, Errors, measure_errors, sample_embedding, sample_rows
from qbench.search.groups import Group, group_sites
from qbench.search.probes import Probes
from qbench.search.sites import Site
from quant.calibration.live import LiveStatistics
from quant.calibration.memory import release_free_memory
from quant.calibration.streaming import EMBEDDING_MODULES
from quant.calibration.tokens import CalibrationTokens
from quant.formats import dequantize, get_format
from quant.models import EMBEDDING, FINAL_NORM, HEAD, ModelConfig, names_by_layer
from quant.qtensor import QTensor
from quant.source import Source
from quant.stats import InputStats, LayerStats, Names

# Layer passes of the probes, as a multiple of those of one pass over the calibration text.
PROBE_SHARE = 2
HEAD_GROUP: Group = (None, "head")


@dataclass(frozen=True, slots=True)
class Use:
    """A product or look-up that reads a site. A tied table has two, and each costs in its own way.

    errors   (format, method) -> relative output error
    """

    group: Group
    errors: Errors


@dataclass(frozen=True, slots=True)
class Survey:
    """The measured costs.

    uses     GGUF name of a site -> its readers
    kld      group -> mean KLD of the model with that group alone rounded by its probe, nats
    factors  group -> KLD per error
    """

    uses: Mapping[str, Sequence[Use]]
    kld: Mapping[Group, float]
    factors: Mapping[Group, float]

    def methods(self, site: Site, fmt: str) -> list[str]:
        """Methods whose error is known for the format."""
        uses = self.uses[site.gguf_name]
        return [method for method in METHODS if all((fmt, method) in use.errors for use in uses)]

    def loss(self, site: Site, fmt: str, method: str) -> float:
        """Predicted KLD of rounding the site alone, nats."""
        return sum(self.factors[use.group] * use.errors[fmt, method] for use in self.uses[site.gguf_name])


@dataclass(frozen=True, slots=True)
class SurveyPlan:
    """bits    per weight, near which the probes round
    arithmetic   of the calibration pass, a name in quant.calibration.gram
    """

    tokens: CalibrationTokens
    bits: float
    arithmetic: str
    threads: int


def survey(
    source: Source, sites: Sequence[Site], plan: SurveyPlan, folder: Path, progress: Progress | None = None
) -> Survey:
    """folder   for hidden states, emptied by the caller

    Peak memory is one decoder layer with its statistics, twice with the rounded copy of one group.
    raises   InputError for tokens that the model has not, and for weights with NaN
    """
    return _Run(source, sites, plan, folder).run(progress)


class _Run:
    def __init__(self, source: Source, sites: Sequence[Site], plan: SurveyPlan, folder: Path) -> None:
        self.source, self.sites, self.plan = source, sites, plan
        self.config = ModelConfig.of(source)
        self.groups = group_sites(sites)
        decoder = StreamedDecoder(self.config, impl=DECODER_IMPL[plan.arithmetic])
        self.statistics = LiveStatistics(
            decoder, plan.tokens, folder, on_quantized=False, gram=plan.arithmetic, num_threads=plan.threads
        )
        shown = probe_tokens(plan.tokens.tokens, len(set(self.groups.values())))
        # In float32: rounding of activations would add its own divergence to that of the weights.
        self.probes = Probes(StreamedDecoder(self.config), shown, folder)
        self.uses: dict[str, list[Use]] = {}
        self.probe_errors: dict[Group, float] = {}

    def run(self, progress: Progress | None) -> Survey:
        names, total = names_by_layer(self.config), self.config.num_layers + 1
        outside = self._read_outside(names[None])
        self._embedding(outside)
        for index in range(self.config.num_layers):
            if progress is not None:
                progress(index, total, f"survey layer {index + 1} of {total - 1}")
            self._layer(index, {name: self.source.read(name) for name in names[index]})
            release_free_memory()
        if progress is not None:
            progress(total - 1, total, "survey head")
        kld = self._head(outside)
        factors = {group: kld[group] / error if error else 0.0 for group, error in self.probe_errors.items()}
        return Survey(self.uses, kld, factors)

    def _read_outside(self, names: Sequence[str]) -> dict[str, QTensor]:
        return {name: self.source.read(name) for name in names if name in self.source.tensors}

    def _embedding(self, outside: Mapping[str, QTensor]) -> None:
        embeds = tuple(name.removesuffix("weight") for name in EMBEDDING_MODULES)
        tensors = {name: each for name, each in outside.items() if name.startswith(embeds)}
        self.statistics.begin(tensors)
        site = self._site_of(EMBEDDING)
        changed = {self.groups[site.gguf_name]: {EMBEDDING: self._rounded(site, tensors[EMBEDDING], None)}}
        self.probes.begin(tensors, changed)
        if not self.config.tie_word_embeddings:
            self._look_up(site, tensors[EMBEDDING], {})

    def _look_up(self, site: Site, table: QTensor, inputs: Mapping[str, InputStats]) -> None:
        """Errors of the rows that tokens look up. inputs: of a tied head"""
        sample = sample_embedding(table, self.plan.tokens.tokens, site.formats)
        errors = measure_errors({site.gguf_name: sample}, inputs, self.config)[site.gguf_name]
        self._add(site, self.groups[site.gguf_name], errors, "rtn")

    def _layer(self, index: int, tensors: Mapping[str, QTensor]) -> None:
        here = [site for site in self.sites if site.layer == index]
        changed: dict[Group, dict[str, QTensor]] = {}

        def look(stats: LayerStats, names: Names) -> dict[str, QTensor]:
            samples = {
                site.gguf_name: sample_rows({name: tensors[name] for name in site.names}, site.formats) for site in here
            }
            errors = measure_errors(samples, stats.inputs, self.config)
            for site in here:
                group = self.groups[site.gguf_name]
                rounded = {name: self._rounded(site, tensors[name], stats.inputs.get(name)) for name in site.names}
                changed.setdefault(group, {}).update(rounded)
                self._add(site, group, errors[site.gguf_name], "imatrix")
            return {}

        self.statistics.through(index, tensors, lambda names: NEEDED, look, in_steps=False)
        self.statistics.done(index)
        self.probes.layer(index, tensors, changed)

    def _head(self, outside: Mapping[str, QTensor]) -> Mapping[Group, float]:
        tied = self.config.tie_word_embeddings
        name = EMBEDDING if tied else HEAD
        site, table = self._site_of(name), outside[name]
        norm = {key: each for key, each in outside.items() if key.startswith(FINAL_NORM.removesuffix("weight"))}
        inputs = self.statistics.head(norm, (name,), lambda names: NEEDED).inputs
        if tied:
            self._look_up(site, table, inputs)
        sample = sample_rows({name: table}, site.formats)
        errors = measure_errors({site.gguf_name: sample}, inputs, self.config)[site.gguf_name]
        self._add(site, HEAD_GROUP, errors, "rtn" if tied else "imatrix")
        rounded = self._rounded(site, table, None if tied else inputs.get(name))
        return self.probes.losses(norm, table, {HEAD_GROUP: rounded})

    def _site_of(self, name: str) -> Site:
        return next(site for site in self.sites if name in site.names)

    def _rounded(self, site: Site, tensor: QTensor, stats: InputStats | None) -> QTensor:
        """The tensor as its group's probe has it, in float32: the format nearest to the target."""
        importance = None if stats is None or not stats.num_tokens else stats.importance
        rounded = get_format(self._probe_format(site)).quantize(dequantize(tensor), importance=importance)
        return get_format("f32").quantize_ref(dequantize(rounded))

    def _add(self, site: Site, group: Group, errors: Errors, method: str) -> None:
        """method: that of the probe; without statistics of the site it is plain rounding"""
        fmt = self._probe_format(site)
        error = errors.get((fmt, method), errors[fmt, "rtn"])
        self.probe_errors[group] = self.probe_errors.get(group, 0.0) + error
        self.uses.setdefault(site.gguf_name, []).append(Use(group, errors))

    def _probe_format(self, site: Site) -> str:
        num_weights = sum(np.prod(self.source.tensors[name].shape) for name in site.names)
        return min(site.formats, key=lambda fmt: abs(8 * site.formats[fmt] / num_weights - self.plan.bits))


def probe_tokens(tokens: np.ndarray, num_groups: int) -> np.ndarray:
    """Windows spread over the text. Passes start at their own layer, so each runs half of the layers on average."""
    num_windows = max(1, min(len(tokens), 2 * PROBE_SHARE * len(tokens) // num_groups))
    return tokens[np.arange(num_windows) * len(tokens) // num_windows]
