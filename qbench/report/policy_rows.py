"""Rows of KV-cache policies: the figures of one policy at one budget, and the tests between policies."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from qbench.measure.metrics import Metrics
from qbench.measure.quality_figures import Quality, TaskResult
from qbench.measure.records.record import Record
from qbench.measure.speed_figures import SpeedFigures
from qbench.report.table import pareto_front
from qbench.run.cache_spec import FULL
from qbench.run.case import Case
from qbench.statistics.estimate import Estimate
from qbench.statistics.paired import kld_difference
from qbench.statistics.verdict import holm


def split_policy(text: str) -> tuple[str, str]:
    """The policy without its budget, and the budget.

    "full" -> ("full", ""); "window:64" -> ("window", "64"); "snapkv:budget=64,window=16" -> ("snapkv:window=16", "64")
    """
    name, _, rest = text.partition(":")
    budget, others = "", []
    for i, option in enumerate(rest.split(",") if rest else []):
        key, equals, value = option.partition("=")
        if key == "budget" or (i == 0 and not equals):
            budget = value if equals else key
        else:
            others.append(option)
    return ":".join([name, *([",".join(others)] if others else [])]), budget


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy at one budget. A sweep may keep its quality and its speed in two records.

    judged   record with the quality, else the first
    timed    record of the deepest speed, else the first
    tasks    task -> its result; of a sweep over questions, "task, question"
    """

    judged: Record
    timed: Record
    tasks: dict[str, TaskResult]

    @property
    def case(self) -> Case:
        return self.judged.model_case

    @property
    def policy(self) -> str:
        return split_policy(self.case.policy)[0]

    @property
    def budget(self) -> str:
        return split_policy(self.case.policy)[1]

    @property
    def is_full(self) -> bool:
        return self.case.policy == FULL

    @property
    def metrics(self) -> Metrics:
        return self.judged.figures

    @property
    def quality(self) -> Quality | None:
        return self.metrics.quality

    @property
    def mean_kld(self) -> float | None:
        return self.quality and self.quality.mean_kld

    @property
    def protocol(self) -> str | None:
        protocol = self.quality and self.quality.protocol
        return protocol.hash if protocol else None

    @property
    def speed(self) -> SpeedFigures:
        found = self.timed.figures.speed
        return found.figures if found and found.figures else SpeedFigures()

    @property
    def peak_bytes(self) -> int | None:
        """The full cache only grows, so its peak is its size at the end."""
        return self.speed.kv_bytes_held if self.is_full else self.speed.kv_peak_bytes


def policy_rows(records: Iterable[Record]) -> list[PolicyRow]:
    """One row per cache, in the order of the records."""
    cases: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        case = record.model_case
        of_cache = (case.kv_format, case.cache, case.prefill_chunk, case.policy, case.kv_ram)
        key = (*setting(record), case.recipe, *of_cache)
        cases.setdefault(key, []).append(record)
    return [_row(found) for found in cases.values()]


def setting(record: Record) -> tuple[object, ...]:
    """Fields that comparable rows share: model, machine, threads, device and batch."""
    case = record.model_case
    return case.model, record.machine.id, case.threads, case.device, case.batch


def _row(records: Sequence[Record]) -> PolicyRow:
    judged = [record for record in records if record.figures.quality and record.figures.quality.mean_kld is not None]
    timed = sorted((record for record in records if record.model_case.speed), key=_depth)
    tasks = {name: result for record in records for name, result in _tasks(record)}
    return PolicyRow([*judged, *records][0], [*records, *timed][-1], tasks)


def _tasks(record: Record) -> Iterator[tuple[str, TaskResult]]:
    asked = record.model_case.tasks
    question = f", {asked.question}" if asked and asked.question else ""
    for name, result in (record.figures.tasks or {}).items():
        yield name + question, result


def _depth(record: Record) -> int:
    speed = record.model_case.speed
    return speed.depth if speed else 0


def fronts(rows: Sequence[PolicyRow]) -> list[tuple[bool, bool]]:
    """Per row: whether it is a Pareto point of (mean KLD, bytes held), and of (mean KLD, decode speed)."""
    nan = float("nan")
    costs = [(row.mean_kld, row.speed.kv_bytes_held, row.speed.tg_tok_s) for row in rows]
    kld, held, speed = np.array([[nan if x is None else x for x in each] for each in costs], dtype=np.float64).T
    by_bytes, by_speed = (pareto_front(np.stack([kld, cost], axis=1)) for cost in (held, -speed))
    return list(zip(by_bytes.tolist(), by_speed.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class PolicyTests:
    """Paired tests of mean KLD in one table, corrected together.

    estimates   (index A, index B) -> mean KLD of B minus that of A
    p_values    of the same pairs, by Holm over all of them; None: the text has too few blocks for a test
    """

    estimates: dict[tuple[int, int], Estimate]
    p_values: dict[tuple[int, int], float | None]

    @property
    def num_tests(self) -> int:
        return sum(p is not None for p in self.p_values.values())


def policy_tests(rows: Sequence[PolicyRow]) -> PolicyTests:
    """Every policy against the full cache, and all pairs of policies at one budget.

    The best policy of a budget is chosen from the same data. So the correction counts all pairs of the budget and not
    only those that contain the best one.
    """
    pairs = [(i, j) for i, row in enumerate(rows) for j, other in enumerate(rows) if row.is_full and not other.is_full]
    evicting = [i for i, row in enumerate(rows) if not row.is_full and row.budget]
    pairs += [(i, j) for i, j in combinations(evicting, 2) if rows[i].budget == rows[j].budget]
    estimates = {}
    for i, j in pairs:
        found = _paired(rows[i], rows[j])
        if found is not None:
            estimates[i, j] = found
    corrected = holm([estimate.p_value for estimate in estimates.values()])
    return PolicyTests(estimates, dict(zip(estimates, corrected, strict=True)))


def _paired(a: PolicyRow, b: PolicyRow) -> Estimate | None:
    """None if either row lacks the sums per block of text."""
    one, other = (row.quality.blocks if row.quality else None for row in (a, b))
    if one is None or other is None or one.kld is None or other.kld is None:
        return None
    return kld_difference(one, other)


def best_of_budget(rows: Sequence[PolicyRow]) -> dict[str, int]:
    """Budget -> index of the row with the lowest mean KLD, if at least two rows have that budget."""
    found: dict[str, list[tuple[float, int]]] = {}
    for i, row in enumerate(rows):
        if row.budget and row.mean_kld is not None:
            found.setdefault(row.budget, []).append((row.mean_kld, i))
    return {budget: min(each)[1] for budget, each in found.items() if len(each) > 1}
