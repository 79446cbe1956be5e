"""Refusals, and the linear that takes it; proof/test_check.py holds the kernel against the oracle over its problems."""

import pytest
import torch
from support.close import assert_close

from gpu_kernels.decode.linears import DenseLinear
from gpu_kernels.gemm.dense_gemv import Operands, dense_gemv


def make():
    draw = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(1, 40, generator=draw).half(),
        "weight": torch.randn(7, 40, generator=draw).half(),
        "bias": torch.randn(7, generator=draw),
    }


def test_equals_the_textbook():
    operands = make()
    expected = [
        sum(a * b for a, b in zip(operands["x"][0].tolist(), row, strict=True)) + one
        for row, one in zip(operands["weight"].tolist(), operands["bias"].tolist(), strict=True)
    ]
    assert_close(dense_gemv(Operands(**operands))[0], torch.tensor(expected).half())


@pytest.mark.parametrize("num_tokens, is_own", [(1, True), (2, False)])
def test_a_linear_takes_it_for_one_token(monkeypatch, num_tokens, is_own):
    operands, asked = make(), []
    linear = DenseLinear(operands["weight"], has_gemv=True)
    monkeypatch.setattr("gpu_kernels.decode.linears.dense_gemv", lambda given: asked.append(given) or given.x)
    linear(operands["x"].expand(num_tokens, -1))
    assert bool(asked) == is_own


REFUSED = {
    "two tokens": (lambda o: dict(x=o["x"].expand(2, -1)), ValueError, r"got x \[2, 40\], expected \[1, 40\]"),
    "float32": (lambda o: dict(x=o["x"].float()), TypeError, "got x torch.float32"),
    "unlike types": (lambda o: dict(weight=o["weight"].bfloat16()), TypeError, "got weight torch.bfloat16"),
    "columns": (lambda o: dict(weight=o["weight"].T.contiguous().T), ValueError, "expected 1 in the end"),
    "bias of another N": (lambda o: dict(bias=o["bias"][:3]), ValueError, r"got bias \[3\], expected \[7\]"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    operands = make()
    with pytest.raises(error, match=message):
        dense_gemv(Operands(**operands | change(operands)))
