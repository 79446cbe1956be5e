"""`recommend`: the answer to which recipe and KV format to run within given memory and speed, as a dictionary."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path

from qbench.calibration.windows import calibration_tokens
from qbench.measure.host.commit import code_version
from qbench.measure.host.machine import machine
from qbench.measure.records.record_files import FOLDERS
from qbench.plan.fits import largest
from qbench.plan.runtime import runtime_bytes
from qbench.quality.evaluate import read_text, setting_of
from qbench.quality.protocols.scoring import GPTQ_WINDOW
from qbench.recommendation.answer import JudgedPoint, MeasuredPoint, MoreKld, Recommendation, RelaxedLimit, RunnerUp
from qbench.recommendation.candidates import CALIBRATED, KV_CHOICES, RECIPES, Candidate, make_candidates
from qbench.recommendation.goal import Goal
from qbench.recommendation.heat import heat_windows
from qbench.recommendation.measure import Judge
from qbench.recommendation.search import GAIN, Verdict, search
from qbench.run.choices import check_kv_format
from qbench.run.work import CalibrationWork, QualityWork, check_unseen
from qbench.sources import open_source
from qbench.sources.rand import PREFIX as RANDOM
from qbench.statistics.paired import kld_difference
from qbench.sweeps.suite.suite_names import check_model, check_recipe
from qbench.sweeps.sweep import OnEvent, exclusive
from qbench.words.written import real_path
from quant.errors import InputError
from quant.models import ModelConfig
from quant.present import present
from quant.source import Source


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One limit, as far as it has to give way, and who meets it then."""

    limit: str  # "memory_bytes", "context", "batch", "tps"
    asked: float
    enough: float
    candidate: Candidate

    @property
    def change(self) -> float:
        """Distance from the requested limit: 0.5 is half as much again, or as much down to two thirds."""
        return max(self.asked / self.enough, self.enough / self.asked) - 1


def relaxations(goal: Goal, verdicts: Sequence[Verdict]) -> list[Relaxation]:
    """Limits that would be enough, each alone, the nearest first; empty if the model cannot run at all."""
    slow = [verdict for verdict in verdicts if verdict.outcome == "speed"]
    large = [verdict for verdict in verdicts if verdict.outcome in ("memory", "peak")]
    found = []
    if slow:
        fastest = max(slow, key=lambda verdict: present(verdict.tps))
        found.append(Relaxation("tps", present(goal.tps), present(fastest.tps), fastest.candidate))
    elif large:
        least = min(large, key=lambda verdict: present(verdict.short))
        enough = goal.memory_bytes + present(least.short)
        found.append(Relaxation("memory_bytes", goal.memory_bytes, enough, least.candidate))
        predicted_large = [verdict.candidate for verdict in large if verdict.outcome == "memory"]
        for limit in ("context", "batch"):
            most = {candidate: _most(goal, limit, candidate) for candidate in predicted_large}
            best = max(most, key=most.__getitem__, default=None)
            if best is not None and most[best]:
                found.append(Relaxation(limit, getattr(goal, limit), most[best], best))
    return sorted(found, key=lambda relaxation: relaxation.change)


def _most(goal: Goal, limit: str, candidate: Candidate) -> int:
    """The largest context or batch with which the candidate keeps to the memory; 0: not even 1 does."""
    asked = {"context": goal.context, "batch": goal.batch}

    def fits(number: int) -> bool:
        return present(candidate.predictor).at(**(asked | {limit: number})).total_bytes <= goal.model_bytes

    return largest(fits, asked[limit] - 1)


JUDGED_TOKENS = 24 * 1024  # of text that judge quality: the quickstart's windows
LONGEST = 8192  # default context, or the model's own if that is shorter


@dataclass(frozen=True, slots=True)
class Asked:
    """The limits, and the points to search.

    memory_bytes   of the whole process, including its memory without a model
    context        tokens per sequence; None: the model's own, LONGEST at most
    recipes        to choose from; empty: RECIPES, and CALIBRATED if there is a text to calibrate on
    text           for the KLD; None: a reference model's held-out text
    calibration    for recipes that calibrate; None: a reference model's own text, no such recipes for others
    windows        of the text; None: as many as make JUDGED_TOKENS
    exhaustive     measure every point that fits, instead of those that `search` takes to matter
    """

    model: str
    memory_bytes: int
    context: int | None = None
    batch: int = 1
    tps: float | None = None
    recipes: Sequence[str] = ()
    kv_formats: Sequence[str] = KV_CHOICES
    text: str | None = None
    calibration: CalibrationWork | None = None
    windows: int | None = None
    threads: int | None = None
    exhaustive: bool = False


def recommend(
    asked: Asked, *, folder: Path = Path("runs/recommend"), on_event: OnEvent | None = None
) -> Recommendation:
    """The point of least KLD that meets the goal, and the outcome of all candidates.

    folder   of new measurements
    raises   InputError for unknown names and impossible limits
    """
    model, kv_formats = asked.model, asked.kv_formats
    recipes = asked.recipes or (RECIPES if asked.calibration is None else (*RECIPES, *CALIBRATED))
    check_names(model, recipes, kv_formats)
    source = open_source(model)
    check_text(source, asked.text)
    if asked.calibration is not None and asked.calibration.text:
        calibration_tokens(source, asked.calibration)
        if asked.text:
            check_unseen(asked.text, asked.calibration.text)
    goal = make_goal(source, asked.memory_bytes, asked.context, asked.batch, asked.tps)
    ordered = [name for name in KV_CHOICES if name in kv_formats] + [
        name for name in kv_formats if name not in KV_CHOICES
    ]
    candidates = make_candidates(source, goal, recipes, ordered)
    window = min(GPTQ_WINDOW, ModelConfig.of(source).max_positions)
    quality = QualityWork(asked.text, asked.windows or max(1, JUDGED_TOKENS // window))
    how = {"threads": asked.threads, "calibration": asked.calibration, "on_event": on_event}
    with exclusive(real_path(folder)), closing(Judge(model, goal, quality, folder, map(Path, FOLDERS), **how)) as judge:
        goal = replace(goal, runtime_bytes=runtime_bytes(asked.threads))
        windows = present(quality.max_windows)
        part = None if asked.exhaustive else heat_windows(windows)
        gain, share = 1.0 if asked.exhaustive else GAIN, windows // part if part else None
        verdicts = search(candidates, goal, judge, gain, share)
    chosen = [verdict for verdict in verdicts if verdict.outcome in ("answer", "runner-up")]
    return Recommendation(
        model=model,
        goal=goal,
        answer=described(chosen[0], goal, judge) if chosen else None,
        runners_up=[runner_up(verdict, goal, judge, chosen[0]) for verdict in chosen[1:]],
        others=[plain(verdict, goal) for verdict in verdicts if verdict not in chosen],
        relaxations=[] if chosen else [relaxed(one) for one in relaxations(goal, verdicts)],
        machine=machine().id,
        code=code_version(),
    )


def check_names(model: str, recipes: Sequence[str], kv_formats: Sequence[str]) -> None:
    check_model(model)
    for recipe in recipes:
        check_recipe(recipe, tuple(kv_formats))
    for kv_format in kv_formats:
        check_kv_format(kv_format)
    if model.startswith(RANDOM):
        raise InputError(f"{model} has random weights: they have no quality to choose by; name a trained model")


def check_text(source: Source, text: str | None) -> None:
    """raises InputError for a model or a text that quality cannot be measured with, before anything is measured"""
    setting_of(source, read_text(text, source.spec), None)


def make_goal(source: Source, memory_bytes: int, context: int | None, batch: int, tps: float | None) -> Goal:
    limit = ModelConfig.of(source).max_positions
    if context is not None and context > limit:
        raise InputError(f"a context of {context} tokens, but {source.spec} holds {limit}; ask for fewer")
    return Goal(memory_bytes, context or min(limit, LONGEST), batch, tps)


def plain(verdict: Verdict, goal: Goal) -> JudgedPoint:
    candidate = verdict.candidate
    return JudgedPoint(
        recipe=candidate.recipe,
        kv_format=candidate.kv_format,
        outcome=verdict.outcome,
        total_bytes=goal.runtime_bytes + candidate.total_bytes if candidate.memory else None,
        kld=verdict.kld,
        tps=verdict.tps,
        short=verdict.short,
        why=verdict.why,
    )


def described(verdict: Verdict, goal: Goal, judge: Judge) -> MeasuredPoint:
    """The point with the figures of its row."""
    row, memory = judge.quality_of(verdict.candidate), present(verdict.candidate.memory)
    facts, quality = (row.facts, row.quality) if row else (None, None)
    artifact = judge.folder / facts.artifact if facts and facts.artifact else None
    point = plain(verdict, goal)
    return MeasuredPoint(
        **{field.name: getattr(point, field.name) for field in fields(point)},
        resident_bytes=memory.resident_bytes,
        kv_bytes=memory.kv_bytes,
        workspace_bytes=memory.workspace_bytes,
        runtime_bytes=goal.runtime_bytes,
        peak_rss_bytes=judge.peak_bytes(verdict.candidate),
        kld_interval=quality and quality.kld_interval,
        same_top=quality and quality.same_top,
        perplexity=quality and quality.perplexity,
        bits_per_weight=facts and facts.bits_per_weight,
        artifact=str(artifact) if artifact and artifact.exists() else None,
    )


def runner_up(verdict: Verdict, goal: Goal, judge: Judge, answer: Verdict) -> RunnerUp:
    """The point, with how much more it diverges than the answer, and how surely."""
    rows = [judge.quality_of(one.candidate) for one in (answer, verdict)]
    before, after = (row and row.quality and row.quality.blocks for row in rows)
    more = kld_difference(before, after) if before and after else None
    point = described(verdict, goal, judge)
    return RunnerUp(
        **{field.name: getattr(point, field.name) for field in fields(point)},
        kld_more=more and MoreKld(more.value, more.low, more.high),
    )


def relaxed(one: Relaxation) -> RelaxedLimit:
    return RelaxedLimit(one.limit, one.asked, one.enough, one.candidate.recipe, one.candidate.kv_format)
