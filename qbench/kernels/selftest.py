"""The self-test: every kernel, in every instruction set that this machine runs, against its oracle."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import StrEnum

import numpy as np

import cpu_kernels
from qbench.kernels.case import Deviation, Kernel, Problem, worst
from qbench.kernels.registry import MEASUREMENTS
from qbench.measure.host.machine import available_cores, machine
from qbench.progress import Progress
from qbench.words.written import nearest
from quant.errors import InputError
from quant.json_data import JsonData


class Status(StrEnum):
    OK = "ok"
    EMULATED = "ok, emulated"  # its machine code ran, and another processor's instructions were those of a test
    WRONG = "WRONG"
    NOT_EXECUTED = "not executed"
    NO_ORACLE = "no oracle"


@dataclass(frozen=True, slots=True)
class Row(JsonData):
    """One implementation: the result of its problems, and its place in dispatch.

    worst     the problem that comes closest to its bound, or exceeds it most; error and bound are of it
    loosest   the largest bound of all problems, over the root mean square of its results
    reason    why the status is not ok
    dispatch  whether calls that name no instruction set get this one, and why
    """

    op: str
    isa: str
    status: Status
    num_problems: int
    error: float | None
    bound: float | None
    loosest: float | None
    worst: str | None
    reason: str | None
    chosen: bool
    dispatch: str


@dataclass(frozen=True, slots=True)
class Implementation(JsonData):
    """A row of cpu_kernels.op_table().

    impl      instruction set
    required  features of the processor
    chosen    whether calls that name no instruction set get this one
    """

    op: str
    impl: str
    required: tuple[str, ...]
    available: bool
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(JsonData):
    """The self-test as one object: counts by status, and every row.

    green   something ran, nothing is wrong, and every op without an oracle measures the machine
    """

    green: bool
    ok: int
    emulated: int
    wrong: int
    not_executed: int
    no_oracle: int
    features: list[str]
    forced_isa: str | None
    rows: list[Row]


class Wrong(Exception):
    """An error of a kernel other than wrong numbers."""


def selftest(kernels: Iterable[Kernel], only: str = "", progress: Progress | None = None) -> list[Row]:
    """A row for each implementation of each op, in the order of cpu_kernels.op_table().

    only     part of an op's name
    raises   InputError if no op has it
    """
    by_op = {kernel.op: kernel for kernel in kernels}
    entries = implementations(by_op.values())
    table = [entry for entry in entries if only in entry.op]
    if not table:
        near = nearest(only, dict.fromkeys(entry.op for entry in entries), most=3)
        raise InputError(f"no op has {only!r} in its name{near}; without --only all are checked and named")
    problems = {op: list(by_op[op].problems()) for op in {entry.op for entry in table} if op in by_op}
    rows = []
    for done, entry in enumerate(table):
        if progress:
            progress(done, len(table), f"{entry.op} {entry.impl}")
        rows.append(check_implementation(entry, problems.get(entry.op), why(entry, table)))
    return rows


def implementations(kernels: Iterable[Kernel]) -> list[Implementation]:
    """The rows of the table, then those of kernels that run as another op, under their own name."""
    table = [Implementation.from_json(row) for row in cpu_kernels.op_table()]
    borrowed = [
        replace(row, op=kernel.op) for kernel in kernels if kernel.runs_as for row in table if row.op == kernel.runs_as
    ]
    return table + borrowed


def check_implementation(entry: Implementation, problems: list[Problem] | None, dispatch: str) -> Row:
    """problems: None if the op has no problems"""
    facts, found = (entry.op, entry.impl), []
    chosen, nothing = (entry.chosen, dispatch), (0, None, None, None, None)
    missing = missing_features(entry)
    if missing:
        return Row(*facts, Status.NOT_EXECUTED, *nothing, f"no {', '.join(missing)} here", *chosen)
    if problems is None:
        reason = "it measures the machine" if entry.op in MEASUREMENTS else "no problems are written for it"
        return Row(*facts, Status.NO_ORACLE, *nothing, reason, *chosen)
    for problem in (one for one in problems if entry.impl not in one.not_for):
        try:
            found.append((problem.label, try_problem(problem, entry.impl)))
        except Exception as error:  # a kernel that raises is as wrong as one that computes nonsense
            reason = f"{type(error).__name__}: {error}" if not isinstance(error, Wrong) else str(error)
            return Row(*facts, Status.WRONG, len(found) + 1, None, None, None, problem.label, reason, *chosen)
    most = worst([deviation for _, deviation in found])
    label = next(label for label, deviation in found if deviation == most)
    right = Status.EMULATED if {*entry.required} & {*cpu_kernels.emulated_features()} else Status.OK
    status, reason = (right, None) if most.is_right else (Status.WRONG, "further from the oracle than the bound")
    loosest = max(deviation.loosest for _, deviation in found)
    return Row(*facts, status, len(found), most.error, most.bound, loosest, label, reason, *chosen)


def missing_features(entry: Implementation) -> list[str]:
    return [name for name in entry.required if name not in cpu_kernels.features()]


def try_problem(problem: Problem, isa: str) -> Deviation:
    """raises Wrong where another implementation ran than was asked for, or where the number of threads shows"""
    results = []
    for threads in (1, max(2, available_cores())):
        with kernel_threads(threads):
            result, ran = problem.run(isa)
        if ran is not None and ran != isa:
            raise Wrong(f"{isa} was asked for, {ran} ran")
        results.append(result)
    if results[0].tobytes() != results[1].tobytes():
        raise Wrong("the result depends on the number of threads")
    return problem.check(results[0])


@contextmanager
def kernel_threads(threads: int) -> Iterator[None]:
    before = cpu_kernels.get_num_threads()
    cpu_kernels.set_num_threads(threads)
    try:
        yield
    finally:
        cpu_kernels.set_num_threads(before)


def why(entry: Implementation, table: list[Implementation]) -> str:
    """Whether dispatch takes an implementation when a call names no implementation, and why."""
    forced = os.environ.get("QBENCH_ISA")
    missing = missing_features(entry)
    if missing:
        return f"needs {', '.join(missing)}"
    if entry.chosen:
        return "chosen: the best " + (f"at or below QBENCH_ISA={forced}" if forced else "that this machine has")
    ranked = [row for row in table if row.op == entry.op]
    chosen = next(row for row in ranked if row.chosen)
    is_better = ranked.index(entry) < ranked.index(chosen)
    return f"above QBENCH_ISA={forced}" if is_better else f"{chosen.impl} is better"


def summary(rows: list[Row]) -> Summary:
    """The rows' errors that are no numbers become None."""
    counts = {status: sum(row.status is status for row in rows) for status in Status}
    unknown = any(row.status is Status.NO_ORACLE and row.op not in MEASUREMENTS for row in rows)
    return Summary(
        green=counts[Status.OK] + counts[Status.EMULATED] > 0 and counts[Status.WRONG] == 0 and not unknown,
        ok=counts[Status.OK],
        emulated=counts[Status.EMULATED],
        wrong=counts[Status.WRONG],
        not_executed=counts[Status.NOT_EXECUTED],
        no_oracle=counts[Status.NO_ORACLE],
        features=list(machine().features),
        forced_isa=os.environ.get("QBENCH_ISA") or None,
        rows=[finite(row) for row in rows],
    )


def finite(row: Row) -> Row:
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    no_numbers = [name for name, value in values.items() if isinstance(value, float) and not np.isfinite(value)]
    return replace(row, **dict.fromkeys(no_numbers))
