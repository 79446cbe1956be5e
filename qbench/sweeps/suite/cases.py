"""The cases of a suite: each point of its grid that is left, with its measurements.

A point's speed is measured there. Quality is the same for any memory limit, number of threads, batch and depth: it is
measured in the first selected case of each combination of the other axes. One point per recipe therefore gives one row
with both.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from qbench.measure.host.conditions import ISA
from qbench.measure.records.kinds import AGAIN
from qbench.measure.records.record import case_key
from qbench.run.axes import AXIS, SUITE_AXES, Axis
from qbench.run.cache_spec import DENSE, FULL, CacheSpec, check_cache
from qbench.run.case import Case
from qbench.run.choices import AUTO_ISA
from qbench.run.divisions import check_sizes
from qbench.run.rank_layout import RankLayout, division_here, refuse_on_ranks
from qbench.run.work import check_unseen, text_file
from qbench.sources.rand import PREFIX as RANDOM
from qbench.sweeps.suite.grid import grid, run_options
from qbench.sweeps.suite.rules import Rule
from qbench.sweeps.suite.suite import MEASURED, Suite
from qbench.sweeps.suite.suite_names import check_here, check_tasks, open_model
from quant.artifacts.file_bytes import sha256_file
from quant.errors import InputError
from quant.models import ModelConfig
from quant.present import present


@dataclass(frozen=True, slots=True)
class Selected:
    """A point of the grid, as a case with all that the suite measures, and the sections that are measured there."""

    point: Case
    sections: tuple[str, ...]  # of MEASURED


def select_points(suite: Suite, only: Sequence[Rule] = ()) -> list[Selected]:
    """The points of the grid that remain after the suite's rules, in order.

    only     points that one of these rules matches; empty: all
    raises   InputError if nothing is left, or for a rule that matches nothing
    """
    left = _points_left(suite)
    for rule in only:
        if not any(rule.matches(one.point) for one in left):
            raise InputError(f"--only {rule} matches none of the {len(left)} points; --dry-run lists them")
    return _quality_once([one for one in left if not only or any(rule.matches(one.point) for rule in only)])


def _points_left(suite: Suite) -> list[Selected]:
    points = list(grid(suite))
    for rule in suite.exclude:
        if not any(rule.matches(point) for point in points):
            raise InputError(f"suite {suite.name}: exclude {rule} matches no point of the grid; leave it out")
    left = []
    for point in points:
        struck = [rule.sections for rule in suite.exclude if rule.matches(point)]
        if () in struck:
            continue
        measured = [name for name in sections(suite, point) if not any(name in rule for rule in struck)]
        if measured:
            check_pair(point, suite)
            left.append(Selected(point, tuple(measured)))
    if not left:
        why = "its rules exclude all" if suite.exclude else "random weights have no quality, and bench is absent"
        raise InputError(f"suite {suite.name}: nothing is left to measure: {why}")
    return left


def check_pair(point: Case, suite: Suite) -> None:
    """raises InputError for a cache, a policy, attention and a device that do not go together"""
    pair = f'cache: {point.cache}, policy: "{point.policy}"'
    if point.prefill != DENSE:
        pair += f', prefill: "{point.prefill}"'
    if point.kv_ram is not None:
        pair += f", kv_ram: {AXIS['kv_ram'].text(point)}"
    try:
        spec = point.cache_spec
        pair = f"attention: {point.attention}, device: {point.device}, {pair}"
        check_cache(spec, point.device, point.attention)
    except InputError as error:
        raise InputError(f"suite {suite.name}: {error}; exclude {{{pair}}}") from error


def _quality_once(points: Sequence[Selected]) -> list[Selected]:
    """The points that measure anything when each subject's quality is measured at its first one alone."""
    selected, judged = [], set()
    for one in points:
        keys = {
            name: (name, *(axis.value(one.point) for axis in SUITE_AXES if _changes(axis, name)))
            for name in one.sections
        }
        measured = [name for name in one.sections if keys[name] not in judged]
        judged |= {keys[name] for name in measured}
        if measured:
            selected.append(Selected(one.point, tuple(measured)))
    return selected


# Part of a case with an axis that changes the results of one section only -> that section.
SECTION_OF = {"quality": "eval", "tasks": "tasks"}


def _changes(axis: Axis, section: str) -> bool:
    """Whether an axis changes the results of a section."""
    if axis.part in SECTION_OF:
        return section == SECTION_OF[axis.part]
    return section == "bench" or not axis.of_speed


def sections(suite: Suite, point: Case) -> tuple[str, ...]:
    """The measurements of the suite at a point. Random weights predict nothing, so they are never evaluated."""
    given = [name for name in MEASURED if getattr(suite, name) is not None]
    return tuple(name for name in given if name == "bench" or not point.model.startswith(RANDOM))


def make_cases(suite: Suite, selected: Sequence[Selected]) -> list[Case]:
    """The cases of these points, each with all that defines it and nothing that comes out of it.

    raises   InputError for a model, text or recipe file that cannot be read, a point that this machine cannot run, and
             for more tokens than a model's context holds
    """
    if any("tasks" in one.sections for one in selected):
        check_tasks(present(suite.tasks))
    describe = _Describe(suite)
    return list(map(describe.case, selected))


class _Describe:
    """Cases of one suite; every model, text and recipe file is read once."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.hash = cache(lambda path: sha256_file(Path(path)))
        self.source = cache(open_model)
        self.model = cache(self._model)
        self.check_unseen = cache(check_unseen)

    def case(self, selected: Selected) -> Case:
        point, measured = selected.point, selected.sections
        check_here(point)
        fingerprint, config = self.model(point.model)
        self.check_policy(point, config)
        division = None if point.division is None else str(division_here(point.division))
        speed = point.speed if "bench" in measured else None
        if speed is not None:
            speed.check_context(config.max_positions)
            if division is not None:  # ranks time as many repetitions
                speed = replace(speed, precision=None, budget_s=None)
        recipe = present(point.recipe)
        quality = point.quality if "eval" in measured else None
        calibration = point.calibration
        if quality and quality.text and calibration and calibration.text:
            self.check_unseen(quality.text, calibration.text)
        case = replace(
            point,
            fingerprint=fingerprint,
            recipe_sha256=self.hash(recipe) if recipe.endswith((".yaml", ".yml")) else None,
            division=division,
            context=speed.longest if speed else None,
            quality=quality and replace(quality, text_sha256=self.text_hash(quality.text)),
            tasks=point.tasks if "tasks" in measured else None,
            speed=speed,
            calibration=calibration and replace(calibration, text_sha256=self.text_hash(calibration.text)),
        )
        if division is not None:
            self.check_division(point, RankLayout.of(division))
            check_divided(case)
        return case

    def text_hash(self, text: str | None) -> str | None:
        """The hash of the file at that path; None for a text that the code makes."""
        file = text_file(text)
        return None if file is None else self.hash(str(file))

    def check_policy(self, point: Case, config: ModelConfig) -> None:
        """raises InputError for a policy that the model cannot have in any KV format"""
        if point.policy == FULL:
            return
        from qbench.runtime.caches.rules import Asked, check  # imports torch

        try:
            check(Asked(config, spec=CacheSpec(policy=point.policy)))
        except InputError as error:
            pair = f'model: "{point.model}", policy: "{point.policy}"'
            raise InputError(f"suite {self.suite.name}: {error}; exclude {{{pair}}}") from error

    def check_division(self, point: Case, layout: RankLayout) -> None:
        """raises InputError for a model without a part for each rank; a recipe that a cut would split fails later"""
        source = self.source(point.model)
        try:
            check_sizes(source, ModelConfig.of(source), layout)
        except InputError as error:
            pair = f'; or exclude {{model: "{point.model}", division: {point.division}}}'
            others = pair if len(self.suite.axes["division"]) > 1 else ""
            raise InputError(f"suite {self.suite.name}: {error}{others}") from error

    def _model(self, spec: str) -> tuple[str, ModelConfig]:
        source = self.source(spec)
        return source.fingerprint(), ModelConfig.of(source)


def check_divided(case: Case) -> None:
    """raises InputError for a case that several ranks cannot measure yet"""
    layout = RankLayout.of(present(case.division))
    forced = os.environ.get(ISA) or AUTO_ISA
    refused = {
        "tasks": case.tasks is not None,
        f"isa {case.isa}": case.isa != forced,
        f"memory {case.memory}": case.memory is not None,
    }
    refuse_on_ranks(refused, layout)
    run_options(case)


def further_launches(selected: Sequence[Selected], cases: Sequence[Case], launches: int) -> list[tuple[Selected, Case]]:
    """Launches 2, 3, ... of every speed, in fresh processes, after all other cases.

    All cases come once per launch, so that the launches of a case spread over time. Such a row is of the kind AGAIN,
    with the key of the first row in `of`; `qbench.comparison.kept_launches` joins them.
    """
    timed = [(Selected(one.point, ("bench",)), case) for one, case in zip(selected, cases, strict=True) if case.speed]
    return [(one, _launch(case, number)) for number in range(2, launches + 1) for one, case in timed]


def _launch(case: Case, number: int) -> Case:
    """The case of the second launch does not name it, as in records from before there were more than two."""
    return replace(case, kind=AGAIN, of=case_key(case), launch=number if number > 2 else None, quality=None, tasks=None)
