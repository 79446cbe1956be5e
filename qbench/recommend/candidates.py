"""The points among which a recommendation is searched: recipes times KV formats, with the memory each will take."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qbench.harness.forecast.planned_source import PlannedSource
from qbench.harness.suite.axes import DENSE
from qbench.recommend.goal import Goal
from qbench.runtime import predict_memory
from quant.errors import InputError
from quant.recipes import get_recipe
from quant.source import Source

# What needs no calibration and is quantized in one pass, from 16 bits a weight to 2; others by name.
RECIPES = ("bf16", "rtn-w8", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "rtn-w4g128", "q4_0", "q3_k_m", "q2_k")
# The most precise first: a coarser one is tried only where those before it are too large or too slow.
CACHES = (DENSE, "kv-f16", "kv-int8", "kv-fp8", "kv-int4")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point.

    memory   `predict_memory` of it; None where recipe or KV format do not fit the model
    unfit    why they do not
    """

    recipe: str
    cache: str
    memory: dict[str, Any] | None = field(default=None, compare=False)
    unfit: str | None = field(default=None, compare=False)

    @property
    def total_bytes(self) -> int:
        return self.memory["total_bytes"]

    def __str__(self) -> str:
        return self.recipe if self.cache == DENSE else f"{self.recipe} with {self.cache}"


def make_candidates(source: Source, goal: Goal, recipes: Sequence[str], caches: Sequence[str]) -> list[Candidate]:
    """Every combination, recipe by recipe, caches in the given order."""
    return [predicted(source, goal, recipe, cache) for recipe in recipes for cache in caches]


def predicted(source: Source, goal: Goal, recipe: str, cache: str) -> Candidate:
    try:
        planned = PlannedSource(source, get_recipe(recipe), None if cache == DENSE else cache)
        return Candidate(recipe, cache, predict_memory(planned, goal.context, goal.batch))
    except (InputError, NotImplementedError) as error:
        return Candidate(recipe, cache, unfit=str(error))
