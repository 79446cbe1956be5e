"""For every kernel, in every problem: a spoiled result is red, and a right one is not."""

import numpy as np
import pytest
from support.spoilers import one_element_off, spoiled

import cpu_kernels
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.registry import kernels

# Their result is the one call, and then the chain of calls that it is compared with.
BESIDE_A_CHAIN = ("feed_forward", "attention_step", "decoder_layers", "moe_")


def best_isa(kernel: Kernel, problem: Problem) -> str | None:
    """The best instruction set here that has the problem's call; None if they all belong to other processors."""
    rows = [row for row in cpu_kernels.op_table() if row["op"] == (kernel.runs_as or kernel.op)]
    return next((row["impl"] for row in rows if row["available"] and row["impl"] not in problem.not_for), None)


# One of each family, "linear" of linear_q4_k, in every run; of attention its step, which takes a tenth of the time.
FAMILIES = {kernel.op.partition("_")[0]: kernel.op for kernel in reversed(kernels()) if kernel.op != "attention"}
OTHERS = pytest.mark.exhaustive("a minute; every run has one kernel of each family")
KERNELS = [
    pytest.param(kernel, id=kernel.op, marks=() if kernel.op in FAMILIES.values() else OTHERS) for kernel in kernels()
]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_spoiled_result_is_red(kernel):
    chosen = [(problem, best_isa(kernel, problem)) for problem in kernel.problems()]
    problems = [(problem, problem.run(isa)[0]) for problem, isa in chosen if isa]
    for problem, result in problems:
        assert problem.check(result).is_right
        if result.size == 0:
            continue
        chain = result[1:] if kernel.op.startswith(BESIDE_A_CHAIN) else result[:0]
        ours = result[: len(result) - len(chain)]
        for label, wrong in [*spoiled(ours), ("one element off", one_element_off(ours))]:
            assert not problem.check(np.concatenate((wrong, chain))).is_right, f"{problem.label}: {label}"
    assert any(result.size for _, result in problems)
