"""The points among which a recommendation is searched: recipes times KV formats, with the memory each will take."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from qbench.recommendation.goal import Goal
from qbench.runtime.memory import MemoryParts, MemoryPredictor
from qbench.sources.planned import PlannedSource, foreseen_scheme
from quant.errors import InputError
from quant.job import QuantizationJob, make_job
from quant.kv_names import FLOAT32
from quant.present import present
from quant.recipes import get_recipe
from quant.source import Source

# Recipes without calibration and with one pass, from 16 bits per weight to 2; others by name.
RECIPES = ("bf16", "rtn-w8", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "rtn-w4g128", "q4_0", "q3_k_m", "q2_k")
# Added if there is a text to calibrate on: the files of llama.cpp that lose least.
CALIBRATED = ("gptq-q5_k_m", "gptq-q4_k_m", "imatrix-q4_k_m", "gptq-q3_k_m")
# The most precise first: a coarser one is tried only if those before it are too large or too slow.
KV_CHOICES = (FLOAT32, "kv-f16", "kv-int8", "kv-fp8", "kv-int4")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point.

    memory      prediction of `predictor` for the goal's context and batch; None if the recipe or the KV format does not
                fit the model
    unfit       why it does not
    predictor   of other contexts and batches
    """

    recipe: str
    kv_format: str
    memory: MemoryParts | None = field(default=None, compare=False)
    unfit: str | None = field(default=None, compare=False)
    predictor: MemoryPredictor | None = field(default=None, compare=False, repr=False)

    @property
    def total_bytes(self) -> int:
        return present(self.memory).total_bytes

    def __str__(self) -> str:
        return self.recipe if self.kv_format == FLOAT32 else f"{self.recipe} with {self.kv_format}"


def make_candidates(source: Source, goal: Goal, recipes: Sequence[str], kv_formats: Sequence[str]) -> list[Candidate]:
    """Every combination, recipe by recipe, KV formats in the given order.

    If fallbacks for odd rows make two recipes the same weights, only the first is a candidate.
    """
    found: list[Candidate] = []
    jobs: list[QuantizationJob] = []
    for recipe in recipes:
        try:
            job = make_job(source, get_recipe(recipe))
            check_new(job, jobs)
            planned = MemoryPredictor(PlannedSource(job))
        except (InputError, NotImplementedError) as error:
            found += [Candidate(recipe, kv_format, unfit=str(error)) for kv_format in kv_formats]
            continue
        jobs.append(job)
        # No KV format changes a weight, so the tensors are planned once.
        found += [predicted(source, goal, recipe, kv_format, planned) for kv_format in kv_formats]
    return found


def check_new(job: QuantizationJob, jobs: Sequence[QuantizationJob]) -> None:
    """raises InputError if another job makes the same weights of this model"""
    for other in jobs:
        if job.weights == other.weights:
            raise InputError(
                f"the same weights as {other.recipe.name}: rows of this model fit no block of {job.recipe.name}"
            )


def predicted(source: Source, goal: Goal, recipe: str, kv_format: str, planned: MemoryPredictor) -> Candidate:
    """planned: of the recipe, with its own KV format"""
    try:
        predictor = planned if kv_format == FLOAT32 else planned.with_scheme(foreseen_scheme(source, kv_format))
        memory = predictor.at(goal.context, goal.batch)
    except (InputError, NotImplementedError) as error:
        return Candidate(recipe, kv_format, unfit=str(error))
    return Candidate(recipe, kv_format, memory, predictor=predictor)
