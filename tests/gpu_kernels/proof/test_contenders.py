import pytest
import torch

from gpu_kernels.proof.configured import Unconfigured
from gpu_kernels.proof.contenders import contenders, operand_sets
from gpu_kernels.proof.problems import Op, Peer, Problem, all_ops, family, in_turn, problems_of


def doubler(**changes) -> Problem:
    """Doubles x in place, next to a peer that wants it as a list."""
    kernel = Unconfigured(lambda x: x.mul_(2), lambda operands, arch: [], {"by 3": lambda x: x.mul_(3)})
    return Problem(
        op=Op("double", kernel, lambda x: 2 * x),
        label="M=3",
        sizes={"M": 3},
        operands=lambda device: {"x": torch.arange(3.0, device=device)},
        agrees=torch.equal,
        num_bytes=24,
        ops=3,
        bound="bandwidth",
        peers={"list": Peer(lambda operands: {"items": operands["x"].tolist()}, lambda items: 2 * items)},
        **changes,
    )


def test_contenders_run_on_the_set_that_is_asked_for():
    problem = doubler()
    sets = operand_sets(problem, "cpu", 2)
    ways = contenders(problem, 90, sets)
    assert [(way.impl, way.is_ours) for way in ways] == [("triton", True), ("triton by 3", True), ("list", False)]
    ways[0].call(0), ways[1].call(1)
    assert (sets[0]["x"].tolist(), sets[1]["x"].tolist()) == ([0, 2, 4], [0, 3, 6])
    assert ways[2].call(1) == [0, 3, 6] * 2


@pytest.mark.parametrize("op", all_ops())
def test_first_variant_matches_the_call(op):
    """If no configuration has been chosen, a problem compiles a kernel for each of its variants, at least."""
    for problem in problems_of(op):
        if variants := problem.variants(90):
            assert problem.row(90)
            assert len(problem.launches(90)) >= len(variants)


def test_in_turn():
    first = [doubler(is_timed=False), doubler()]
    found = in_turn([*first, *(problem for op in all_ops() for problem in problems_of(op))])
    assert [problem.op.name for problem in found[: 1 + len(all_ops())]] == ["double", *all_ops()]
    assert found[0] is first[1]
    assert all(problem.is_timed for problem in found)


def test_family_is_the_folder_of_an_op():
    assert family("w8a8_gemm") == "gemm" and family("quantize_per_token") == "fused"
