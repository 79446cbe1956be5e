"""One pass over the model that measures the cost of each format per site: errors per layer, and probes on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qbench.calibration.run import DECODER_IMPL
from qbench.progress import Progress
from qbench.runtime.streamed import StreamedDecoder
from qbench.search.errors import METHODS, NEEDED, Errors, Key, measure_errors, sample_embedding, sample_rows
from qbench.search.groups import Group, group_sites
from qbench.search.kv_choice import CacheChoice
from qbench.search.probes import FEEDBACK, KINDS, PLAIN, Probe, ProbeRounding, Probes
from qbench.search.sites import Site
from qbench.search.survey_tokens import hessian_windows, joint_tokens, kv_tokens, single_tokens
from quant.calibration.live import LiveStatistics
from quant.calibration.memory import release_free_memory
from quant.calibration.streaming import EMBEDDING_MODULES
from quant.calibration.tokens import CalibrationTokens
from quant.kv import KVScheme
from quant.models import EMBEDDING, FINAL_NORM, HEAD, ModelConfig, names_by_layer
from quant.qtensor import QTensor
from quant.source import Source
from quant.stats import InputStats, LayerStats, Names

HEAD_GROUP: Group = (None, "head")
ALL: Group = (None, "all")
KV: Group = (None, "kv")


@dataclass(frozen=True, slots=True)
class Use:
    """A product or look-up that reads a site. A tied table has two, and each costs in its own way.

    errors     (format, method) -> relative output error
    is_linear  of a decoder layer, so that probes round it with error feedback too
    """

    group: Group
    errors: Errors
    is_linear: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """The measured costs. A kind of rounding is FEEDBACK (GPTQ) or PLAIN (all others).

    uses         name of a site -> its readers
    kld          group -> mean KLD of the model with that group alone rounded with error feedback, nats
    factors      group -> KLD per error
    interaction  kind -> KLD of the model with all groups rounded so, over the sum of factors times errors
    kv           KV format -> mean KLD of the unrounded model with it, nats
    policies     cache policy -> the same with it
    """

    uses: Mapping[str, Sequence[Use]]
    kld: Mapping[Group, float]
    factors: Mapping[Group, float]
    interaction: Mapping[str, float]
    kv: Mapping[str, float] = field(default_factory=dict)
    policies: Mapping[str, float] = field(default_factory=dict)

    def methods(self, site: Site, fmt: str) -> list[str]:
        """Methods whose error is known for the format."""
        uses = self.uses[site.name]
        return [method for method in METHODS if all((fmt, method) in use.errors for use in uses)]

    def loss(self, site: Site, fmt: str, method: str) -> float:
        """Predicted part of the site in the KLD of the whole rounded model, nats."""
        return sum(
            self.factors[use.group] * use.errors[fmt, method] * self.interaction[_kind(use, method)]
            for use in self.uses[site.name]
        )

    def cache_loss(self, cache: CacheChoice) -> float:
        """Predicted part of the KV cache: that of its format and that of its policy. Others than these are exact."""
        return self.kv.get(cache.format, 0.0) + self.policies.get(cache.policy, 0.0)


def _kind(use: Use, method: str) -> str:
    """Tables are rounded plainly in files of both kinds, and their errors meet those of the layers."""
    return PLAIN if use.is_linear and method != "gptq" else FEEDBACK


@dataclass(frozen=True, slots=True)
class SurveyPlan:
    """bits    per weight, near which the probes round
    arithmetic   of the calibration pass, a name in quant.calibration.gram
    plain    whether to measure plain rounding too, if a tensor has statistics
    kv       KV formats to measure, by name
    kv_context   tokens of a sequence of the cache
    """

    tokens: CalibrationTokens
    bits: float
    arithmetic: str
    threads: int
    plain: bool = True
    kv: Mapping[str, KVScheme] = field(default_factory=dict)
    kv_context: int = 1


def survey(
    source: Source, sites: Sequence[Site], plan: SurveyPlan, folder: Path, progress: Progress | None = None
) -> Survey:
    """folder   for hidden states, emptied by the caller

    Peak memory is one decoder layer with its statistics and two rounded copies of it.
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
            decoder,
            hessian_windows(plan.tokens, _widest(source, sites), self.config),
            folder,
            on_quantized=False,
            gram=plan.arithmetic,
            num_threads=plan.threads,
        )
        tokens = plan.tokens.tokens
        shown = single_tokens(tokens, len(set(self.groups.values())))
        # In float32: rounding of activations would add its own divergence to that of the weights.
        self.single = Probes(StreamedDecoder(self.config), shown, folder / "single")
        self.joint = Probes(StreamedDecoder(self.config), joint_tokens(tokens), folder / "joint")
        schemes = {(KV, name): scheme for name, scheme in plan.kv.items()}
        kept = kv_tokens(tokens, max(1, len(schemes)), min(plan.kv_context, self.config.max_positions))
        self.kv = [Probes(StreamedDecoder(self.config), kept, folder / "kv", schemes)] if schemes else []
        self.rounding = ProbeRounding(source, self.config, plan.bits)
        self.uses: dict[str, list[Use]] = {}
        self.probe_errors: dict[Probe, float] = {}

    def run(self, progress: Progress | None) -> Survey:
        for probes in (self.single, self.joint, *self.kv):
            probes.folder.mkdir(exist_ok=True)
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
        kld, joint, kv = self._head(outside)
        errors = {group: self._probe_error(group, FEEDBACK) for group, kind in self.probe_errors if kind == PLAIN}
        factors = {group: kld[group, FEEDBACK] / error if error else 0.0 for group, error in errors.items()}
        return Survey(
            self.uses,
            {group: each for (group, _), each in kld.items()},
            factors,
            {kind: self._interaction(factors, kind, joint[ALL, kind]) for kind in KINDS},
            kv,
        )

    def _interaction(self, factors: Mapping[Group, float], kind: str, joint: float) -> float:
        """joint: KLD with all groups rounded by the probes of the kind"""
        alone = sum(factor * self._probe_error(group, kind) for group, factor in factors.items())
        return joint / alone if alone else 1.0

    def _probe_error(self, group: Group, kind: str) -> float:
        """The error of a group as probes of the kind round it; tables have no feedback."""
        return self.probe_errors.get((group, kind), self.probe_errors[group, PLAIN])

    def _read_outside(self, names: Sequence[str]) -> dict[str, QTensor]:
        return {name: self.source.read(name) for name in names if name in self.source.tensors}

    def _embedding(self, outside: Mapping[str, QTensor]) -> None:
        embeds = tuple(name.removesuffix("weight") for name in EMBEDDING_MODULES)
        tensors = {name: each for name, each in outside.items() if name.startswith(embeds)}
        self.statistics.begin(tensors)
        site = self._site_of(EMBEDDING)
        rounded = {} if site is None else {EMBEDDING: self.rounding.plain(site, tensors[EMBEDDING], None)}
        self.single.begin(tensors, {} if site is None else {(self.groups[site.name], FEEDBACK): rounded})
        self.joint.begin(tensors, {(ALL, kind): rounded for kind in KINDS})
        for probes in self.kv:
            probes.begin(tensors, {})
        if site is not None and not self.config.tie_word_embeddings:
            self._look_up(site, tensors[EMBEDDING], {})

    def _look_up(self, site: Site, table: QTensor, inputs: Mapping[str, InputStats]) -> None:
        """Errors of the rows that tokens look up. inputs: of a tied head"""
        sample = sample_embedding(table, self.plan.tokens.tokens, site.formats)
        errors = measure_errors({site.name: sample}, inputs, self.config)[site.name]
        self._add(site, self.groups[site.name], errors, {PLAIN: self.rounding.key(site, errors, "rtn")})

    def _layer(self, index: int, tensors: Mapping[str, QTensor]) -> None:
        here = [site for site in self.sites if site.layer == index]
        changed: dict[Probe, dict[str, QTensor]] = {}

        def look(stats: LayerStats, names: Names) -> dict[str, QTensor]:
            samples = {
                site.name: sample_rows({name: tensors[name] for name in site.names}, site.formats) for site in here
            }
            errors = measure_errors(samples, stats.inputs, self.config, self.plan.plain)
            fed_back = self.rounding.fed_back([(site, errors[site.name]) for site in here], tensors, stats.inputs)
            for site in here:
                self._change(site, errors[site.name], tensors, stats.inputs, fed_back, changed)
            return {}

        self.statistics.through(index, tensors, lambda names: NEEDED, look, in_steps=False)
        self.statistics.done(index)
        joint = {probe: some for probe, some in changed.items() if probe[0] == ALL}
        self.single.layer(index, tensors, {probe: some for probe, some in changed.items() if probe not in joint})
        self.joint.layer(index, tensors, joint)
        for probes in self.kv:
            probes.layer(index, tensors, {})

    def _change(
        self,
        site: Site,
        errors: Errors,
        tensors: Mapping[str, QTensor],
        inputs: Mapping[str, InputStats],
        fed_back: Mapping[str, QTensor],
        changed: dict[Probe, dict[str, QTensor]],
    ) -> None:
        """Adds the site's rounded tensors to the probes of its group and of all. fed_back: tensors with GPTQ's codes"""
        group, keys = self.groups[site.name], {PLAIN: self.rounding.key(site, errors, "imatrix")}
        rounded = {PLAIN: {name: self.rounding.plain(site, tensors[name], inputs.get(name)) for name in site.names}}
        rounded[FEEDBACK] = {name: fed_back.get(name, plain) for name, plain in rounded[PLAIN].items()}
        if all(name in fed_back for name in site.names):
            keys[FEEDBACK] = self.rounding.key(site, errors, "gptq")
        for kind in KINDS:
            changed.setdefault((ALL, kind), {}).update(rounded[kind])
        changed.setdefault((group, FEEDBACK), {}).update(rounded[FEEDBACK])
        self._add(site, group, errors, {FEEDBACK: keys[PLAIN]} | keys)

    def _head(
        self, outside: Mapping[str, QTensor]
    ) -> tuple[Mapping[Probe, float], Mapping[Probe, float], dict[str, float]]:
        """Divergences of probes of one group, of all groups, and of each KV format."""
        name = EMBEDDING if self.config.tie_word_embeddings else HEAD
        site, table = self._site_of(name), outside[name]
        norm = {key: each for key, each in outside.items() if key.startswith(FINAL_NORM.removesuffix("weight"))}
        rounded = {} if site is None else {HEAD_GROUP: self._round_head(site, table, norm)}
        kld = self.single.losses(norm, table, {(group, FEEDBACK): each for group, each in rounded.items()})
        joint = self.joint.losses(norm, table, {(ALL, kind): each for each in rounded.values() for kind in KINDS})
        kv = {name: loss for probes in self.kv for (_, name), loss in probes.losses(norm, table, {}).items()}
        return kld, joint, kv

    def _round_head(self, site: Site, table: QTensor, norm: Mapping[str, QTensor]) -> QTensor:
        """The head as its probes round it; adds its errors."""
        tied = self.config.tie_word_embeddings
        name = EMBEDDING if tied else HEAD
        inputs = self.statistics.head(norm, (name,), lambda names: NEEDED).inputs
        if tied:
            self._look_up(site, table, inputs)
        sample = sample_rows({name: table}, site.formats)
        errors = measure_errors({site.name: sample}, inputs, self.config)[site.name]
        self._add(site, HEAD_GROUP, errors, {PLAIN: self.rounding.key(site, errors, "rtn" if tied else "imatrix")})
        return self.rounding.plain(site, table, None if tied else inputs.get(name))

    def _site_of(self, name: str) -> Site | None:
        """None for a table that the container keeps in floats."""
        return next((site for site in self.sites if name in site.names), None)

    def _add(self, site: Site, group: Group, errors: Errors, keys: Mapping[str, Key]) -> None:
        """keys: kind -> format and method of the probe"""
        for kind, key in keys.items():
            self.probe_errors[group, kind] = self.probe_errors.get((group, kind), 0.0) + errors[key]
        self.uses.setdefault(site.name, []).append(Use(group, errors, FEEDBACK in keys))


def _widest(source: Source, sites: Sequence[Site]) -> int:
    return max(source.tensors[name].shape[-1] for site in sites for name in site.names)
