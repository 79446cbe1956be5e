from dataclasses import replace
from unittest import mock

import pytest
import torch

from gpu_kernels.launch import INTERPRETED_AS, Launch
from gpu_kernels.proof import check
from gpu_kernels.proof.configured import Unconfigured
from gpu_kernels.proof.problems import all_ops, problems_of, within_rounding

ops = pytest.mark.parametrize("op", all_ops())


VARIANTS = pytest.mark.exhaustive("a quarter of a minute; every run has the configuration that is chosen")


def with_kernel(problem, kernel):
    return replace(problem, op=replace(problem.op, kernel=kernel))


def without_variants(problem):
    kernel = problem.op.kernel
    return with_kernel(problem, Unconfigured(kernel.call, kernel.launches))


def wrong_as_chosen(op):
    """Check the op's problems, each in the configuration that a user's call takes."""
    problems = [without_variants(problem) for problem in problems_of(op) if problem.is_interpreted]
    return check.wrong_results(problems, "cpu", INTERPRETED_AS)


def wrong_without_launches(op):
    with mock.patch.object(Launch, "run"):
        return wrong_as_chosen(op)


@ops
def test_right_under_the_interpreter(interpreter, op):
    assert interpreter(wrong_as_chosen, op) == []


@VARIANTS
@pytest.mark.parametrize("op", [op for op in all_ops() if any(one.variants(INTERPRETED_AS) for one in problems_of(op))])
def test_every_configuration_is_right_under_the_interpreter(interpreter, op):
    assert interpreter(check.wrong_when_interpreted, op, INTERPRETED_AS) == []


@ops
def test_unwritten_results_are_wrong(interpreter, op):
    """Every problem runs a kernel, writes all of its result with it, and its bound separates right from wrong."""
    problems = [problem for problem in problems_of(op) if problem.is_interpreted]
    wrong = interpreter(wrong_without_launches, op)
    assert [problem.label for problem in problems if not any(str(problem) in told for told in wrong)] == []


@ops
def test_labels_and_rows_are_unique(op):
    labels = [problem.label for problem in problems_of(op)]
    assert len(labels) == len(set(labels))
    assert any(problem.is_timed for problem in problems_of(op))
    assert any(problem.is_interpreted for problem in problems_of(op))


def test_an_exception_is_reported():
    problem = with_kernel(
        problems_of("quantize_per_token")[-1], Unconfigured(lambda x: x.missing, lambda operands, arch: [])
    )
    wrong = check.wrong_results([problem], "cpu", INTERPRETED_AS)
    assert wrong == [f"{problem} raises AttributeError: 'Tensor' object has no attribute 'missing'"]


def test_poisoned_memory():
    with check.poisoned_memory():
        assert torch.empty(3).isnan().all() and (torch.empty(3, dtype=torch.int8) == 127).all()
    assert not torch.are_deterministic_algorithms_enabled()


def test_within_rounding():
    expected = torch.tensor([1.0, -3e4, 0.0], dtype=torch.float64)
    half_step = torch.tensor([2**-12, 0.0, 0.0], dtype=torch.float64)
    assert within_rounding((expected + half_step).half(), expected, float32_roundings=3)
    assert not within_rounding((expected + 8 * half_step).half(), expected, float32_roundings=3)
    assert not within_rounding(torch.tensor([1.0, -3e4, torch.nan]).half(), expected, float32_roundings=3)
    special = torch.tensor([torch.nan, torch.inf, -torch.inf])
    assert within_rounding(special, special.double(), float32_roundings=0)
    assert not within_rounding(special.roll(1), special.double(), float32_roundings=0)


def test_an_oracle_that_raises_is_one_line(monkeypatch):
    def wrong_results(problems, device, arch):
        raise RuntimeError("no memory\nmore")

    monkeypatch.setattr(check, "wrong_results", wrong_results)
    assert check._wrong_of("compact", "cpu", 90) == ["compact: its oracle raises RuntimeError: no memory"]


def test_each_op_is_checked_in_its_own_process():
    """Without the interpreter no CPU tensor can be given to a kernel, so each op's problems name the tensors."""
    wrong = check.wrong_apart(["compact", "mla_cache"], "cpu", INTERPRETED_AS)
    assert {line.split()[0] for line in wrong} == {"compact", "mla_cache"}
