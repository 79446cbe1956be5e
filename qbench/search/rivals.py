"""Fixed recipes that a mix has to beat: those of at most the same bytes, the best by prediction of each method."""

from collections.abc import Sequence
from dataclasses import dataclass

from qbench.search.sites import Site
from qbench.search.survey import Survey
from quant.errors import InputError
from quant.job import make_job
from quant.recipes import RECIPES, Recipe
from quant.source import Source

# llama-quantize with an importance matrix, and the same mixes with GPTQ's error feedback.
METHODS = ("imatrix", "gptq")
PLAIN = "q8_0"  # has no imatrix form
# A recipe of this many times the best one's predicted loss is not the best: of the searches in results/search the
# worst two predictions of one model differ by a factor of 1.7 in how far they are off.
FAR = 3.0


@dataclass(frozen=True, slots=True)
class Rival:
    """loss: predicted KLD, nats"""

    recipe: Recipe
    size_bytes: int
    loss: float


def choose_rivals(source: Source, sites: Sequence[Site], survey: Survey, budget_bytes: int) -> list[Rival]:
    """The best fixed recipe of each method, if any fits."""
    found = []
    for method in METHODS:
        named = [recipe for recipe in RECIPES.values() if recipe.method == method or recipe.name == PLAIN]
        fitting = [rival for recipe in named if (rival := _rival(recipe, source, sites, survey, budget_bytes))]
        if fitting:
            found.append(min(fitting, key=lambda rival: rival.loss))
    return list({rival.recipe.name: rival for rival in found}.values())


def near_rivals(rivals: Sequence[Rival]) -> list[Rival]:
    """Those that may be the best by their predictions."""
    least = min((rival.loss for rival in rivals), default=0.0)
    return [rival for rival in rivals if rival.loss <= FAR * least]


def _rival(recipe: Recipe, source: Source, sites: Sequence[Site], survey: Survey, budget_bytes: int) -> Rival | None:
    """None for a recipe of another container, of too many bytes, or with formats that were not surveyed."""
    if recipe.container != "gguf":
        return None
    try:
        job = make_job(source, recipe)
    except InputError:  # it does not fit this model
        return None
    size_bytes = sum(info.size_bytes for info in job.foreseen_tensors().values())
    if size_bytes > budget_bytes:
        return None
    loss = 0.0
    for site in sites:
        fmt = job.choices[site.names[0]].format
        methods = survey.methods(site, fmt) if fmt in site.formats else []
        if not methods:
            return None
        method = recipe.method if recipe.method in methods else "rtn"
        loss += survey.loss(site, fmt, method)
    return Rival(recipe, size_bytes, loss)
