"""A search before any work: budget, windows of both texts, output, and every refusal."""

from dataclasses import dataclass, field
from pathlib import Path

from qbench.calibration.options import CalibrationOptions
from qbench.calibration.windows import calibration_tokens
from qbench.quality.evaluate import prepare, read_text
from qbench.quality.protocols.scoring import Scoring
from qbench.search.cost import CHECK, SOLVE, SURVEY, WRITE
from qbench.search.document import is_searched
from qbench.search.overlap import check_overlap
from qbench.search.sites import Site, fixed_bytes, sites_of
from qbench.search.target import WINDOWS, Target
from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.gguf_general import general_metadata
from quant.artifacts.gguf_header import DEFAULT_ALIGNMENT, is_gguf
from quant.artifacts.gguf_writer import head_bytes
from quant.artifacts.output import own_files
from quant.atomic import check_target
from quant.calibration.tokens import CalibrationTokens
from quant.errors import InputError
from quant.job import make_job
from quant.models import ModelConfig
from quant.recipes import RECIPES
from quant.sizes import num_weights
from quant.source import Source, SourceView

ANY_RECIPE = "q8_0"  # every GGUF recipe gives a file of the same tensors
KEYS_OF_A_RECIPE = 4096  # bytes; names of a recipe and of its calibration text


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """output   the GGUF file; the recipe is written next to it
    text     held-out text; None: that of the reference models
    windows  of the held-out text that are scored, at most
    exhaustive  make every rival and score all windows, however clear the outcome is
    ablation  make also the steps on the way to the mix: uniform formats, plain mixes, a mix without error feedback
    """

    target: Target
    output: Path
    calibration: CalibrationOptions = field(default_factory=CalibrationOptions)
    text: Path | None = None
    windows: int = WINDOWS
    threads: int = 1
    exhaustive: bool = False
    ablation: bool = False

    @property
    def recipe_path(self) -> Path:
        return self.output.with_suffix(".yaml")


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """budget_bytes   of all tensors
    fixed_bytes    of those that no search changes
    """

    source: Source
    options: SearchOptions
    sites: list[Site]
    budget_bytes: int
    fixed_bytes: int
    tokens: CalibrationTokens
    scorings: list[Scoring]

    @property
    def bits(self) -> float:
        """Bits per weight of the budget."""
        return 8 * self.budget_bytes / num_weights(self.source.tensors)


def plan_search(source: Source, options: SearchOptions) -> SearchPlan:
    """raises InputError for a target that no mix reaches, options that do not fit a search, and texts that overlap"""
    _check_options(options)
    check_target(options.output, is_gguf)
    check_target(options.recipe_path, is_searched)
    if any(options.output.exists() and path.samefile(options.output) for path in own_files(source)):
        raise InputError(f"{options.output} is the model itself, which would be lost; write to another name")
    if ModelConfig.of(source).architecture.gguf_arch is None:
        raise InputError(f"{source.spec}: GGUF has no architecture for this model, so no mix of its formats exists")
    sites = sites_of(source)
    fixed, head = fixed_bytes(source, sites), file_head_bytes(source)
    budget = options.target.budget_bytes(num_weights(source.tensors), head)
    _check_reach(source, sites, fixed, head, options.target)
    tokens = calibration_tokens(source, options.calibration)
    scorings = prepare(source, read_text(options.text, source.spec), options.windows)
    check_overlap(tokens.tokens, [window.tokens for scoring in scorings for window in scoring.windows])
    return SearchPlan(source, options, sites, budget, fixed, tokens, scorings)


def _check_options(options: SearchOptions) -> None:
    by = options.calibration
    if options.output.suffix != ".gguf":
        raise InputError(f"--target searches GGUF formats; got output {options.output}, expected a name like best.gguf")
    if options.output.stem in {*RECIPES, SURVEY, SOLVE, CHECK, WRITE}:
        raise InputError(
            f"the mix gets the name of its file, and {options.output.stem} names something else in a search; "
            f"got output {options.output}, expected a name like best.gguf"
        )
    for name, value in (("--imatrix", by.imatrix), ("--stats", by.stats), ("--export-imatrix", by.export_imatrix)):
        if value is not None:
            raise InputError(f"--target and {name}: the search collects its own statistics; drop {name}")


def file_head_bytes(source: Source) -> int:
    """The most that the GGUF file of a mix takes beyond its tensors: keys, table and padding."""
    view = SourceView(source)
    view.tensors = make_job(source, RECIPES[ANY_RECIPE]).foreseen_tensors()
    head = head_bytes(F32Vectors(view), name=source.spec, metadata=general_metadata(source, None))
    return head + DEFAULT_ALIGNMENT * len(source.tensors) + KEYS_OF_A_RECIPE


def _check_reach(source: Source, sites: list[Site], fixed: int, head: int, target: Target) -> None:
    smallest = fixed + sum(min(site.formats.values()) for site in sites)
    largest = fixed + sum(max(site.formats.values()) for site in sites)
    if not smallest <= target.budget_bytes(num_weights(source.tensors), head) <= largest:
        ends = " and ".join(_described(size, head, source) for size in (smallest, largest))
        raise InputError(f"target {target.text}: mixes of {source.spec} take between {ends}")


def _described(size_bytes: int, head: int, source: Source) -> str:
    bits = 8 * size_bytes / num_weights(source.tensors)
    return f"{bits:.3f}bpw (a file of {size_bytes + head} bytes)"
