"""A search before any work: budget, windows of both texts, output, and every refusal."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qbench.calibration.windows import calibration_tokens
from qbench.progress import Progress
from qbench.quality.evaluate import prepare, read_text
from qbench.quality.protocols.scoring import Scoring
from qbench.run.work import CalibrationWork
from qbench.search.cost import PHASES
from qbench.search.document import is_searched
from qbench.search.kv_choice import CacheChoice, KVWanted, kv_sizes
from qbench.search.policy_loss import check_evicts
from qbench.search.refusals import check_overlap, directory_head_bytes, unused_text
from qbench.search.sites import GGUF, HF, Site, fixed_bytes, num_searched, sites_of
from qbench.search.solve import Option, fastest, shared
from qbench.search.solve import largest as largest_within
from qbench.search.step_time import Formats, StepTimes, measure_step_times
from qbench.search.survey_tokens import kv_windows
from qbench.search.target import WINDOWS, Target
from qbench.words.read import count
from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.gguf_general import general_metadata
from quant.artifacts.gguf_header import DEFAULT_ALIGNMENT, is_gguf
from quant.artifacts.gguf_writer import head_bytes
from quant.artifacts.output import is_artifact_dir, own_files
from quant.atomic import check_target
from quant.calibration.tokens import CalibrationTokens
from quant.errors import InputError
from quant.job import make_job
from quant.models import ModelConfig
from quant.present import present
from quant.recipes import RECIPES
from quant.sizes import num_weights
from quant.source import Source, SourceView

ANY_RECIPE = "q8_0"  # every GGUF recipe gives a file of the same tensors
PLAIN = "rtn"
# Over the model of middle formats: the smallest mix reads 1.7 times fewer bytes. Times of a busy machine promise more.
MOST_FASTER = 4.0
KEYS_OF_A_RECIPE = 4096  # bytes; names of a recipe and of its calibration text
FILES = (".safetensors", ".bin", ".pt", ".yaml", ".yml", ".json")  # suffixes of files that no search writes

Rows = list[list[Option]]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """output   a name that ends in .gguf, or a directory for compressed-tensors; the recipe is written next to it
    text     held-out text; None: that of the reference models
    windows  of the held-out text that are scored, at most
    exhaustive  make every rival and score all windows, however clear the outcome is
    ablation  make also the steps on the way to the mix: uniform formats, plain mixes, a mix without error feedback
    kv        cache whose bytes count in the budget, and the formats it may get; None: weights alone count
    """

    target: Target
    output: Path
    calibration: CalibrationWork = field(default_factory=CalibrationWork)
    text: Path | None = None
    windows: int = WINDOWS
    threads: int = 1
    exhaustive: bool = False
    ablation: bool = False
    kv: KVWanted | None = None

    @property
    def container(self) -> str:
        return GGUF if self.output.suffix == ".gguf" else HF

    @property
    def name(self) -> str:
        """The name of the mix."""
        return self.output.stem if self.container == GGUF else self.output.name

    @property
    def recipe_path(self) -> Path:
        return self.output.with_name(f"{self.name}.yaml")


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """budget_bytes   of all tensors, and of the KV cache if it counts
    fixed_bytes    of the tensors that no search changes
    kv             KV cache -> its bytes; {}: it does not count
    unused         calibration text that a finished mix is measured on, if there is enough of it
    times          of a decode step; None unless the target has a speed
    """

    source: Source
    options: SearchOptions
    sites: list[Site]
    budget_bytes: int
    fixed_bytes: int
    tokens: CalibrationTokens
    scorings: list[Scoring]
    unused: Scoring | None = None
    times: StepTimes | None = None
    kv: Mapping[CacheChoice, int] = field(default_factory=dict)

    def rows(
        self,
        loss: Callable[[Site, str, str], float],
        methods: Callable[[Site, str], Iterable[str]],
        kv_loss: Callable[[CacheChoice], float],
    ) -> Rows:
        """The options of each of `places`, then those of the KV cache if it counts: its policy is their method.

        loss     of a site, format and method
        kv_loss  of a KV cache
        """
        rows = [
            [
                Option(fmt, method, size_bytes, loss(site, fmt, method), self._more_seconds(site, fmt))
                for fmt, size_bytes in site.formats.items()
                for method in methods(site, fmt)
            ]
            for site in self.sites
        ]
        rows = [shared([rows[site] for site in sites]) if len(sites) > 1 else rows[sites[0]] for sites in self.places]
        kv = [Option(one.format, one.policy, size_bytes, kv_loss(one)) for one, size_bytes in self.kv.items()]
        return [*rows, kv] if kv else rows

    @property
    def places(self) -> list[list[int]]:
        """Numbers of sites: those that share a format are in one list."""
        sharing = [number for number, site in enumerate(self.sites) if site.shares_format]
        alone = [[number] for number, site in enumerate(self.sites) if not site.shares_format]
        return [*alone, sharing] if sharing else alone

    def per_site(self, chosen: Sequence[Option]) -> list[Option]:
        """The options of the sites and of the KV cache. chosen: one of each of `rows`"""
        found: dict[int, Option] = {}
        for sites, option in zip(self.places, chosen, strict=False):
            found |= dict(zip(sites, option.parts or [option], strict=True))
        return [*(found[number] for number in range(len(self.sites))), *chosen[len(self.places) :]]

    def _more_seconds(self, site: Site, fmt: str) -> float:
        return 0.0 if self.times is None else self.times.more[site.name][fmt]

    def step_seconds(self, formats: Formats) -> float | None:
        """Predicted time of a decode step; None unless the target has a speed. formats: of each site"""
        return None if self.times is None else self.times.step(formats)

    def is_fast(self, formats: Formats) -> bool:
        """Whether a mix of these formats keeps the speed of the target."""
        seconds = self.step_seconds(formats)
        return seconds is None or seconds <= self.options.target.step_seconds

    @property
    def more_seconds(self) -> float:
        """The most that the steps of a mix may take more than those of the middle model."""
        return math.inf if self.times is None else self.options.target.step_seconds - self.times.middle

    @property
    def bits(self) -> float:
        """Bits per weight that sites may take; with a KV cache, about: as if its format were the middle one by size."""
        kv_bytes = sorted(self.kv.values())[len(self.kv) // 2] if self.kv else 0
        smallest, largest = mix_sizes(self.sites)
        size_bytes = min(max(self.budget_bytes - kv_bytes - self.fixed_bytes, smallest), largest)
        return 8 * size_bytes / num_searched(self.source, self.sites)


def plan_search(source: Source, options: SearchOptions, progress: Progress | None = None) -> SearchPlan:
    """raises InputError for a target that no mix reaches, options that do not fit a search, and texts that overlap"""
    _check_options(options)
    check_target(options.output, is_gguf if options.container == GGUF else is_artifact_dir)
    check_target(options.recipe_path, is_searched)
    if any(options.output.exists() and path.samefile(options.output) for path in own_files(source)):
        raise InputError(f"{options.output} is the model itself, which would be lost; write to another name")
    if options.container == GGUF and ModelConfig.of(source).architecture.gguf_arch is None:
        raise InputError(f"{source.spec}: GGUF has no architecture for this model, so no mix of its formats exists")
    sites = sites_of(source, options.container)
    fixed = fixed_bytes(source, sites)
    head = file_head_bytes(source) if options.container == GGUF else directory_head_bytes(source)
    budget = options.target.budget_bytes(num_weights(source.tensors), head)
    kv = {} if options.kv is None else kv_sizes(source, options.kv)
    of_kv = kv.values() or [0]
    smallest, largest = mix_sizes(sites)
    ends = fixed + smallest + min(of_kv), fixed + largest + max(of_kv)
    _check_reach(source, ends, head, options)
    if budget is None:
        budget = ends[-1]
    tokens = calibration_tokens(source, options.calibration)
    scorings = prepare(source, read_text(options.text, source.spec), options.windows)
    held_out = [window.tokens for scoring in scorings for window in scoring.windows]
    unused = unused_text(source, options.calibration, scorings[0])
    check_overlap([*tokens.tokens, *(window.tokens for window in (unused.windows if unused else []))], held_out)
    if options.kv is not None:
        shortest = min(kv_windows(tokens.tokens, options.kv.context).shape[1], max(map(len, held_out)))
        check_evicts(list(dict.fromkeys(cache.policy for cache in kv)), ModelConfig.of(source), shortest)
    plan = SearchPlan(source, options, sites, budget, fixed, tokens, scorings, unused, kv=kv)
    return plan if options.target.tok_s is None else _timed(plan, options.target.tok_s, progress)


def _timed(plan: SearchPlan, tok_s: float, progress: Progress | None) -> SearchPlan:
    """The plan with the times of steps, and the bytes of the largest mix that is fast enough.

    raises   InputError if no mix within the size is
    """
    timed = replace(plan, times=measure_step_times(plan.source, plan.sites, plan.options.threads, progress=progress))
    rows, budget = timed.rows(lambda *_: 0.0, lambda *_: [PLAIN], lambda _: 0.0), plan.budget_bytes - plan.fixed_bytes
    middle = present(timed.times).middle
    least = max(middle + fastest(rows, budget), middle / MOST_FASTER)
    if least > 1 / tok_s:
        raise InputError(
            f"target {plan.options.target.text}: the fastest mix of {plan.source.spec} within it decodes "
            f"{1 / least:.1f} tokens per second here, with {count(plan.options.threads, 'thread')}"
        )
    return replace(timed, budget_bytes=plan.fixed_bytes + largest_within(rows, budget, timed.more_seconds))


def _check_options(options: SearchOptions) -> None:
    by = options.calibration
    if options.output.suffix in FILES:
        raise InputError(
            f"search writes a GGUF file or a directory; got output {options.output}, expected a name like best.gguf "
            "or best"
        )
    if options.name in {*RECIPES, *PHASES}:
        raise InputError(
            f"the mix gets the name of its file, and {options.name} names something else in a search; "
            f"got output {options.output}, expected a name like best.gguf or best"
        )
    for name, value in (("--imatrix", by.imatrix), ("--stats", by.stats), ("--export-imatrix", by.export_imatrix)):
        if value is not None:
            raise InputError(f"search and {name}: the search collects its own statistics; drop {name}")


def file_head_bytes(source: Source) -> int:
    """The most that the GGUF file of a mix takes beyond its tensors: keys, table and padding."""
    view = SourceView(source)
    view.tensors = make_job(source, RECIPES[ANY_RECIPE]).foreseen_tensors()
    head = head_bytes(F32Vectors(view), name=source.spec, metadata=general_metadata(source, None))
    return head + DEFAULT_ALIGNMENT * len(source.tensors) + KEYS_OF_A_RECIPE


def mix_sizes(sites: Iterable[Site]) -> tuple[int, int]:
    """Bytes of the sites in the smallest and in the largest mix."""
    sizes = [site.formats.values() for site in sites]
    return sum(map(min, sizes)), sum(map(max, sizes))


def _check_reach(source: Source, ends: tuple[int, int], head: int, options: SearchOptions) -> None:
    """ends: bytes of the smallest and of the largest mix, with a KV cache that counts"""
    target = options.target
    budget = target.budget_bytes(num_weights(source.tensors), head)
    if budget is None and options.kv is not None:
        raise InputError(
            f"target {target.text} has no size for the KV cache of --context to count in; add one, such as 3.2GiB"
        )
    if budget is not None and not ends[0] <= budget <= ends[1]:
        what = "a file" if options.kv is None else "a file and a KV cache"
        said = " and ".join(
            f"{8 * size_bytes / num_weights(source.tensors):.3f}bpw ({what} of {size_bytes + head} bytes)"
            for size_bytes in ends
        )
        raise InputError(f"target {target.text}: mixes of {source.spec} take between {said}")
