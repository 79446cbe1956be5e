"""From a plan to the best file: survey, solve, make the mix and its rivals, measure them, write the winner."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from qbench.calibration.run import Run, choose_arithmetic, quantized_model
from qbench.measure.records.kept_searches import PLAIN_MIX, SearchCase, SearchedFile, SearchMetrics, SearchSpeed
from qbench.progress import Progress
from qbench.run.cache_spec import FULL
from qbench.search.cost import CHECK, PREDICTION, SOLVE, SPEED, SURVEY, WRITE, Phases
from qbench.search.document import METHOD, is_searched, mix_document, to_yaml
from qbench.search.errors import METHODS
from qbench.search.kv_choice import KVCost, kv_schemes
from qbench.search.plan import SearchPlan
from qbench.search.policy_loss import policy_losses
from qbench.search.rivals import Rival, choose_rivals, near_rivals
from qbench.search.sites import GGUF
from qbench.search.solve import Option, solve
from qbench.search.step_time import Formats, measure_step
from qbench.search.survey import Survey, SurveyPlan, survey
from qbench.search.survey_tokens import kv_tokens
from qbench.search.validate import Check, check, predict
from quant.artifacts import make_artifact_job, write_artifact
from quant.artifacts.layouts import CompressedTensorsLayout
from quant.atomic import atomic_file
from quant.json_data import JsonData
from quant.models import ModelConfig
from quant.recipes.yaml_recipe import recipe_from
from quant.sizes import num_weights
from quant.source import Source

KIND = "search"


@dataclass(frozen=True, slots=True)
class SearchResult(JsonData):
    """case   model, target and texts"""

    json_flat: ClassVar[tuple[str, ...]] = ("case", "metrics")

    artifact: str
    recipe_file: str
    case: SearchCase
    metrics: SearchMetrics


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A recipe document, and the predicted KLD of its file in nats.

    formats  of each site
    method   that most of its tensors are rounded by
    kv       None: the KV cache does not count
    """

    document: Mapping
    size_bytes: int
    predicted: float
    formats: Formats
    method: str = METHOD
    kv: KVCost | None = None


def search(plan: SearchPlan, progress: Progress | None = None) -> SearchResult:
    """Writes the artifact, its manifest and its recipe.

    raises   InputError as `quantized_model` and `write_artifact`, and leaves nothing half-written
    """
    output, phases = plan.options.output, Phases()
    with TemporaryDirectory(prefix=f".{output.name}.search-", dir=output.parent) as folder:
        with phases.phase(SURVEY):
            found = _survey(plan, Path(folder), progress)
        with phases.phase(SOLVE):
            chosen = _solve(plan, found)
            candidates = _candidates(plan, found, chosen)
        result = _race(plan, candidates, Path(folder), phases, progress)
        of_sites = zip(plan.sites, chosen[: len(plan.sites)], strict=True)
        mix = {site.name: f"{one.format} {one.method}" for site, one in of_sites}
        return replace(result, metrics=replace(result.metrics, mix=mix))


def _survey(plan: SearchPlan, folder: Path, progress: Progress | None) -> Survey:
    arithmetic = choose_arithmetic(plan.options.calibration)
    kv, wanted = kv_schemes(plan.kv, ModelConfig.of(plan.source)), plan.options.kv
    context = 1 if wanted is None else wanted.context
    how = SurveyPlan(plan.tokens, plan.bits, arithmetic, plan.options.threads, plan.options.ablation, kv, context)
    found = survey(plan.source, plan.sites, how, folder, progress)
    policies = list(dict.fromkeys(cache.policy for cache in plan.kv))
    shown = kv_tokens(plan.tokens.tokens, max(1, len(policies) - 1), context)
    return replace(found, policies=policy_losses(plan.source, policies, shown, plan.options.threads))


def _solve(plan: SearchPlan, found: Survey, methods: Sequence[str] = METHODS) -> list[Option]:
    """The options of the sites, then that of the KV cache if it counts."""
    rows = plan.rows(
        found.loss, lambda site, fmt: [each for each in found.methods(site, fmt) if each in methods], found.cache_loss
    )
    return plan.per_site(solve(rows, plan.budget_bytes - plan.fixed_bytes, plan.more_seconds))


def _candidates(plan: SearchPlan, found: Survey, chosen: Sequence[Option]) -> dict[str, _Candidate]:
    """The mix first, then the fixed recipes of at most the target's bytes."""
    name = plan.options.name
    mix = _mix(plan, name, chosen)
    options = plan.options
    kv = [KVCost(one.format, size_bytes, found.cache_loss(one), one.policy) for one, size_bytes in plan.kv.items()]
    rivals = choose_rivals(plan.source, plan.sites, found, plan.budget_bytes, options.ablation, plan.is_fast, kv)
    if not options.exhaustive:
        rivals = near_rivals(rivals)
    candidates = {name: mix} | {rival.recipe.name: _fixed(rival) for rival in rivals}
    if options.ablation:
        candidates[name + PLAIN_MIX] = _mix(plan, name + PLAIN_MIX, _solve(plan, found, METHODS[:-1]))
    return candidates


def _mix(plan: SearchPlan, name: str, chosen: Sequence[Option]) -> _Candidate:
    of_sites, of_kv = chosen[: len(plan.sites)], chosen[len(plan.sites) :]
    size_bytes = plan.fixed_bytes + sum(option.size_bytes for option in of_sites)
    document = mix_document(name, plan.source, plan.sites, of_sites)
    formats = {site.name: option.format for site, option in zip(plan.sites, of_sites, strict=True)}
    kv = next((KVCost(one.format, one.size_bytes, one.loss, one.method) for one in of_kv), None)
    document |= {} if kv is None else kv.document
    return _Candidate(document, size_bytes, sum(option.loss for option in chosen), formats, kv=kv)


def _fixed(rival: Rival) -> _Candidate:
    return _Candidate(rival.document, rival.size_bytes, rival.loss, rival.formats, rival.recipe.method, rival.kv)


def _race(
    plan: SearchPlan,
    candidates: Mapping[str, _Candidate],
    folder: Path,
    phases: Phases,
    progress: Progress | None,
) -> SearchResult:
    options, mix = plan.options, next(iter(candidates))
    with ExitStack() as stack:
        made = {}
        for number, (name, candidate) in enumerate(candidates.items()):
            job = make_artifact_job(plan.source, recipe_from(candidate.document, name), options.output)
            with phases.phase(name):
                how = Run(options.threads, progress=progress)
                model = quantized_model(job, options.calibration, folder / f"stage-{number}", how)
                made[name] = stack.enter_context(model)
        predicted = {name: (each.size_bytes, each.predicted) for name, each in candidates.items()}
        policies = {name: each.kv.policy for name, each in candidates.items() if each.kv is not None}
        wanted = Check(
            plan.source,
            made,
            predicted,
            mix,
            plan.scorings[0],
            options.exhaustive,
            folder,
            options.threads,
            policies,
        )
        if plan.unused is not None:
            with phases.phase(PREDICTION):
                mixes = [name for name in candidates if name in (mix, mix + PLAIN_MIX)]
                measured_ahead = predict(wanted, plan.unused, mixes, progress)
            ahead = {name: (candidates[name].size_bytes, kld) for name, kld in measured_ahead.items()}
            wanted = replace(wanted, predicted=predicted | ahead)
        with phases.phase(CHECK):
            measured = [_with_kv_bytes(each, candidates[each.name].kv) for each in check(wanted, progress)]
        chosen, reason = choose(measured, mix)
        _write_recipe(plan, candidates[chosen], reason)
        with phases.phase(WRITE):
            path = write_artifact(made[chosen], progress)
        with phases.phase(SPEED):
            speed = _speed(plan, candidates[chosen].formats, made[chosen])
    gptq_runs = [name for name, candidate in candidates.items() if candidate.method == METHOD]
    gptq_run = next((name for name in gptq_runs if name not in (mix, mix + PLAIN_MIX)), mix)
    metrics = SearchMetrics(
        chosen,
        reason,
        num_weights(plan.source.tensors),
        candidates=tuple(measured),
        cost=None if options.ablation else phases.cost(gptq_run),  # its extra files are no part of a search
        speed=speed,
    )
    return SearchResult(str(path), str(options.recipe_path), search_case(plan), metrics)


def _with_kv_bytes(file: SearchedFile, kv: KVCost | None) -> SearchedFile:
    if kv is None:
        return file
    return replace(file, kv_format=kv.format, kv_bytes=kv.size_bytes, policy=None if kv.policy == FULL else kv.policy)


def _speed(plan: SearchPlan, formats: Formats, file: Source) -> SearchSpeed | None:
    """Predicted and measured speed of the file that is written, if the target has a speed."""
    seconds = plan.step_seconds(formats)
    return None if seconds is None else SearchSpeed(1 / seconds, 1 / measure_step(file, plan.options.threads))


def search_case(plan: SearchPlan) -> SearchCase:
    """The search as records name it."""
    options = plan.options
    return SearchCase(
        KIND,
        plan.source.spec,
        target=options.target.text,
        container=None if options.container == GGUF else CompressedTensorsLayout.quant_method,
        calibration_sha256=plan.tokens.sha256,
        protocol_hash=plan.scorings[0].protocol.hash,
        windows=len(plan.scorings[0].windows),
        threads=options.threads,
        context=None if options.kv is None else options.kv.context,
        batch=None if options.kv is None else options.kv.batch,
        kv=None if options.kv is None else options.kv.text,
        policies=None if options.kv is None or options.kv.policies == (FULL,) else ",".join(options.kv.policies),
    )


def choose(measured: Sequence[SearchedFile], mix: str) -> tuple[str, str]:
    """Name of the candidate to write, and why."""
    rivals = [each for each in measured if each.name != mix]
    if not rivals:
        return mix, "no fixed recipe is within the target"
    best = min(rivals, key=lambda each: each.kld.value)
    if best.is_beaten:
        return mix, f"lower KLD than {best.name}, the best fixed recipe of at most the target's bytes"
    return best.name, f"no mix was better than {best.name} beyond the noise of the held-out text"


def _write_recipe(plan: SearchPlan, candidate: _Candidate, reason: str) -> None:
    command, kv = f"{plan.source.spec} --target {plan.options.target.text}", plan.options.kv
    if kv is not None:
        command += f" --context {kv.context} --kv {kv.text} --batch {kv.batch} --policy {','.join(kv.policies)}"
        if candidate.kv is not None and candidate.kv.policy != FULL:
            reason += f"; run it with --policy {candidate.kv.policy}, whose cache counts in the size"
    with atomic_file(plan.options.recipe_path, replaces=is_searched) as temp:
        temp.write_text(to_yaml(candidate.document, command, reason), encoding="utf-8", newline="")
