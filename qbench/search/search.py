"""From a plan to the best file: survey, solve, make the mix and its rivals, measure them, write the winner."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from qbench.calibration.arithmetic import choose_arithmetic
from qbench.calibration.run import quantized_model
from qbench.progress import Progress
from qbench.search.document import is_searched, mix_document, to_yaml
from qbench.search.plan import SearchPlan
from qbench.search.rivals import Rival, choose_rivals
from qbench.search.solve import Option, solve
from qbench.search.survey import Survey, SurveyPlan, survey
from qbench.search.validate import Measured, compare, measure_all
from quant.artifacts import make_artifact_job, write_artifact
from quant.atomic import atomic_file
from quant.json_data import JsonData
from quant.recipes.yaml_recipe import recipe_from


@dataclass(frozen=True, slots=True)
class SearchResult(JsonData):
    """chosen   name of the recipe that was written
    reason   why it was
    """

    model: str
    target: str
    artifact: str
    recipe_file: str
    chosen: str
    reason: str
    candidates: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A recipe document, and the predicted KLD of its file in nats."""

    document: Mapping
    size_bytes: int
    predicted: float


def search(plan: SearchPlan, progress: Progress | None = None) -> SearchResult:
    """Writes the artifact, its manifest and its recipe.

    raises   InputError as `quantized_model` and `write_artifact`, and leaves nothing half-written
    """
    output = plan.options.output
    with TemporaryDirectory(prefix=f".{output.name}.search-", dir=output.parent) as folder:
        candidates = _candidates(plan, _survey(plan, Path(folder), progress))
        return _race(plan, candidates, Path(folder), progress)


def _survey(plan: SearchPlan, folder: Path, progress: Progress | None) -> Survey:
    arithmetic = choose_arithmetic(plan.options.calibration)
    how = SurveyPlan(plan.tokens, plan.bits, arithmetic, plan.options.threads)
    return survey(plan.source, plan.sites, how, folder, progress)


def _candidates(plan: SearchPlan, found: Survey) -> dict[str, _Candidate]:
    """The mix first, then the fixed recipes of at most the target's bytes."""
    rows = [
        [
            Option(fmt, method, size_bytes, found.loss(site, fmt, method))
            for fmt, size_bytes in site.formats.items()
            for method in found.methods(site, fmt)
        ]
        for site in plan.sites
    ]
    chosen = solve(rows, plan.budget_bytes - plan.fixed_bytes)
    name = plan.options.output.stem
    size_bytes = plan.fixed_bytes + sum(option.size_bytes for option in chosen)
    document = mix_document(name, plan.source, plan.sites, chosen)
    mix = _Candidate(document, size_bytes, sum(option.loss for option in chosen))
    rivals = choose_rivals(plan.source, plan.sites, found, plan.budget_bytes)
    return {name: mix} | {rival.recipe.name: _fixed(rival) for rival in rivals}


def _fixed(rival: Rival) -> _Candidate:
    name = rival.recipe.name
    return _Candidate({"name": name, "base": name}, rival.size_bytes, rival.loss)


def _race(
    plan: SearchPlan, candidates: Mapping[str, _Candidate], folder: Path, progress: Progress | None
) -> SearchResult:
    options, mix = plan.options, next(iter(candidates))
    with ExitStack() as stack:
        made = {}
        for number, (name, candidate) in enumerate(candidates.items()):
            job = make_artifact_job(plan.source, recipe_from(candidate.document, name), options.output)
            model = quantized_model(
                job, options.calibration, folder / f"stage-{number}", threads=options.threads, progress=progress
            )
            made[name] = stack.enter_context(model)
        qualities = measure_all(plan.source, made, plan.scorings, options.threads, progress)
        predicted = {name: (each.size_bytes, each.predicted) for name, each in candidates.items()}
        measured = compare(qualities, predicted, mix)
        chosen, reason = choose(measured, mix)
        _write_recipe(plan, candidates[chosen], reason)
        path = write_artifact(made[chosen], progress)
    return SearchResult(
        plan.source.spec, options.target.text, str(path), str(options.recipe_path), chosen, reason, tuple(measured)
    )


def choose(measured: list[Measured], mix: str) -> tuple[str, str]:
    """Name of the candidate to write, and why."""
    rivals = [each for each in measured if each.name != mix]
    if not rivals:
        return mix, "no fixed recipe is as small"
    best = min(rivals, key=lambda each: each.kld.value)
    if best.is_beaten:
        return mix, f"lower KLD than {best.name}, the best fixed recipe of at most the target's bytes"
    return best.name, f"no mix was better than {best.name} beyond the noise of the held-out text"


def _write_recipe(plan: SearchPlan, candidate: _Candidate, reason: str) -> None:
    command = f"{plan.source.spec} --target {plan.options.target.text}"
    with atomic_file(plan.options.recipe_path, replaces=is_searched) as temp:
        temp.write_text(to_yaml(candidate.document, command, reason), encoding="utf-8", newline="")
