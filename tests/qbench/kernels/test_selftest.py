"""The self-test finds errors, and never shows an op as right that did not run."""

from dataclasses import replace

import numpy as np
import pytest

import cpu_kernels
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.registry import MEASUREMENTS, kernels
from qbench.kernels.selftest import Status, selftest, summary
from quant.errors import InputError

OP = "gptq"


def broken(spoil) -> list[Kernel]:
    """The kernels of OP, of which avx2 gives spoil(result, who ran)."""
    (kernel,) = (kernel for kernel in kernels() if kernel.op == OP)

    def spoiled(problem: Problem) -> Problem:
        def run(isa: str):
            result, ran = problem.run(isa)
            return spoil(result, ran) if isa == "avx2" else (result, ran)

        return replace(problem, run=run)

    return [Kernel(OP, lambda: map(spoiled, kernel.problems()))]


def one_number_off(result, ran):
    result = result.copy()
    result.flat[-1] += 1
    return result, ran


def one_nan(result, ran):
    if result.dtype.kind == "f":
        result = result.copy()
        result.flat[0] = np.nan
    return result, ran


def raises(result, ran):
    raise ValueError("no such block")


def number_of_threads(result, ran):
    return result + cpu_kernels.get_num_threads(), ran


needs_avx2 = pytest.mark.skipif("avx2" not in cpu_kernels.features(), reason="this machine has no avx2")


@needs_avx2
@pytest.mark.parametrize(
    "spoil, reason",
    [
        pytest.param(one_number_off, "further from the oracle", id="one number"),
        pytest.param(one_nan, "further from the oracle", id="NaN"),
        pytest.param(raises, "ValueError: no such block", id="raises"),
        pytest.param(lambda result, ran: (result, "scalar"), "avx2 was asked for, scalar ran", id="another ran"),
        pytest.param(number_of_threads, "number of threads", id="threads"),
    ],
)
def test_only_the_wrong_kernel_is_red(spoil, reason):
    rows = {row.isa: row for row in selftest(broken(spoil), OP)}
    assert rows["avx2"].status is Status.WRONG and reason in rows["avx2"].reason
    assert rows["scalar"].status is Status.OK
    assert not summary(list(rows.values())).green


def test_every_op_of_the_table_has_problems():
    without = {entry["op"] for entry in cpu_kernels.op_table()} - {kernel.op for kernel in kernels()}
    assert without <= MEASUREMENTS


def test_kernels_that_this_machine_lacks_are_not_executed(monkeypatch):
    table = cpu_kernels.op_table()
    table.insert(0, {"op": OP, "impl": "sse9", "required": ("sse9",), "available": False, "chosen": False})
    monkeypatch.setattr(cpu_kernels, "op_table", lambda: table)
    row = next(row for row in selftest(kernels(), OP) if row.isa == "sse9")
    assert (row.status, row.num_problems, row.error) == (Status.NOT_EXECUTED, 0, None)
    assert row.reason == "no sse9 here" and not row.chosen


def test_a_problem_is_left_to_kernels_with_its_call():
    (kernel,) = (kernel for kernel in kernels() if kernel.op == OP)
    first, *rest = kernel.problems()
    some = [replace(first, not_for=frozenset({"scalar"})), *rest]
    rows = {row.isa: row for row in selftest([Kernel(OP, lambda: some)], OP)}
    assert rows.pop("scalar").num_problems == len(rest)
    assert {row.num_problems for row in rows.values() if row.status is Status.OK} <= {len(some)}


def test_emulated_kernels_are_marked(monkeypatch):
    monkeypatch.setattr(cpu_kernels, "emulated_features", lambda: ("scalar",))
    rows = {row.isa: row for row in selftest(kernels(), OP)}
    assert rows.pop("scalar").status is Status.EMULATED and Status.EMULATED not in {row.status for row in rows.values()}


def test_an_op_without_problems_is_red():
    rows = selftest([], OP)
    assert {row.status for row in rows} - {Status.NOT_EXECUTED} == {Status.NO_ORACLE} and not summary(rows).green
    assert not summary(rows + selftest(kernels(), "gram")).green


def test_machine_probes_are_neither_checked_nor_wrong():
    measured, checked = selftest(kernels(), "int8_peak"), selftest(kernels(), OP)
    assert not summary(measured).green and not summary([]).green
    assert summary(measured + checked).green


def test_reasons_of_dispatch(monkeypatch):
    monkeypatch.setenv("QBENCH_ISA", "scalar")
    rows = {row.isa: row for row in selftest(kernels(), OP)}
    assert rows["scalar"].chosen and rows["scalar"].dispatch == "chosen: the best at or below QBENCH_ISA=scalar"
    assert all("above QBENCH_ISA" in row.dispatch or "needs" in row.dispatch for row in rows.values() if not row.chosen)


def test_unknown_op():
    with pytest.raises(InputError, match="no op has 'linear_q9_0' in its name; did you mean 'linear_q"):
        selftest(kernels(), "linear_q9_0")
