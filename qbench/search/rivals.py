"""Fixed recipes that a mix has to beat: those of at most the same bytes, the best by prediction of each kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.search.document import uniform_document
from qbench.search.kv_choice import KVCost
from qbench.search.sites import FORMATS, HF, Site
from qbench.search.step_time import Formats
from qbench.search.survey import Survey
from quant.errors import InputError
from quant.job import make_job
from quant.recipes import RECIPES, Recipe
from quant.recipes.yaml_recipe import recipe_from
from quant.source import Source

# llama-quantize with an importance matrix, and the same mixes with GPTQ's error feedback.
METHODS = ("imatrix", "gptq")
PLAIN_METHOD = "rtn"
PLAIN = "q8_0"  # has no imatrix form
FLOAT = "bf16"  # loses nothing that a mix could win
# A recipe of this many times the best one's predicted loss is not the best: of the searches in results/search the
# worst two predictions of one model differ by a factor of 1.7 in how far they are off.
FAR = 3.0


@dataclass(frozen=True, slots=True)
class Rival:
    """A fixed recipe that the mix is compared with.

    document   that the recipe is read from
    size_bytes of its tensors
    loss       predicted KLD, that of the KV format included, nats
    formats    of each site
    kv         None: the KV cache does not count
    """

    recipe: Recipe
    document: Mapping
    size_bytes: int
    loss: float
    formats: Formats
    kv: KVCost | None = None


def choose_rivals(
    source: Source,
    sites: Sequence[Site],
    survey: Survey,
    budget_bytes: int,
    ablation: bool = False,
    is_fast: Callable[[Formats], bool] = lambda formats: True,
    kv: Sequence[KVCost] = (),
) -> list[Rival]:
    """The best fixed recipe of each method, if any fits.

    ablation  of each step on the way to a searched mix
    is_fast   whether a recipe of these formats is fast enough
    kv        KV formats that it may go with, whose bytes count
    """
    kinds = _documents(source, sites, ablation)
    found = []
    for documents in kinds:
        plain = [_rival(document, source, sites, survey, budget_bytes) for document in documents]
        near = [rival for one in plain if one is not None and is_fast(one.formats) for rival in _per_kv_format(one, kv)]
        fitting = [rival for rival in near if _total(rival) <= budget_bytes]
        if fitting:
            found.append(min(fitting, key=lambda rival: rival.loss))
    return list({rival.recipe.name: rival for rival in found}.values())


def _documents(source: Source, sites: Sequence[Site], ablation: bool) -> Sequence[Sequence[Mapping]]:
    """Per kind of rival the recipes to choose from. A directory has no named mixes, so each has one format."""
    if sites[0].container == HF:
        formats = [fmt for fmt in sites[0].formats if fmt != FLOAT]
        return [[_uniform_linears(fmt, method) for fmt in formats] for method in (PLAIN_METHOD, "gptq")]
    kinds = [_named(method) for method in ((PLAIN_METHOD, *METHODS) if ablation else METHODS)]
    return [[uniform_document(source, fmt) for fmt in FORMATS], *kinds] if ablation else kinds


def _uniform_linears(fmt: str, method: str) -> dict[str, str]:
    return {"name": f"{method}-{fmt}", "container": HF, "default": fmt, "method": method}


def _named(method: str) -> list[dict[str, str]]:
    named = [recipe for recipe in RECIPES.values() if recipe.method == method or recipe.name == PLAIN]
    return [{"name": recipe.name, "base": recipe.name} for recipe in named if recipe.container == "gguf"]


def near_rivals(rivals: Sequence[Rival]) -> list[Rival]:
    """Those that may be the best by their predictions."""
    least = min((rival.loss for rival in rivals), default=0.0)
    return [rival for rival in rivals if rival.loss <= FAR * least]


def _rival(document: Mapping, source: Source, sites: Sequence[Site], survey: Survey, budget_bytes: int) -> Rival | None:
    """None for a recipe of too many bytes, or with formats that were not surveyed."""
    recipe = recipe_from(document, document["name"])
    try:
        job = make_job(source, recipe)
    except InputError:  # it does not fit this model
        return None
    size_bytes = sum(info.size_bytes for info in job.foreseen_tensors().values())
    if size_bytes > budget_bytes:
        return None
    loss, formats = 0.0, {site.name: job.choices[site.names[0]].format for site in sites}
    for site in sites:
        fmt = formats[site.name]
        methods = survey.methods(site, fmt) if fmt in site.formats else []
        if not methods:
            return None
        method = recipe.method if recipe.method in methods else methods[0]
        loss += survey.loss(site, fmt, method)
    return Rival(recipe, document, size_bytes, loss, formats)


def _per_kv_format(rival: Rival, kv: Sequence[KVCost]) -> list[Rival]:
    """The recipe with each KV format. kv: empty if no KV cache counts"""
    if not kv:
        return [rival]
    found = []
    for cost in kv:
        name = rival.recipe.name + (f"+{cost.format}" if cost.document else "")
        document = dict(rival.document) | {"name": name} | cost.document
        recipe = recipe_from(document, name)
        found.append(replace(rival, recipe=recipe, document=document, loss=rival.loss + cost.loss, kv=cost))
    return found


def _total(rival: Rival) -> int:
    return rival.size_bytes + (0 if rival.kv is None else rival.kv.size_bytes)
