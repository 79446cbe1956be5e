"""The oracle, and refusals; proof/test_check.py holds the kernel against the oracle over its problems."""

import math

import pytest
import torch
import torch.nn.functional as F
from support.close import assert_close

from gpu_kernels.fused.silu_mul import MAX_K, silu_mul, silu_mul_ref
from gpu_kernels.fused.silu_mul_problems import _reference, agrees

kinds = pytest.mark.parametrize("quantize", [None, "int8", "fp8"])


def make(M, K, dtype=torch.float32, device="cpu"):
    both = torch.randn(M, 2 * K, generator=torch.Generator().manual_seed(0)) * 8
    return both.to(dtype).to(device).chunk(2, dim=1)


def test_ref_equals_textbook_loop():
    gate, up = make(3, 5)
    for m, k in [(m, k) for m in range(3) for k in range(5)]:
        x = gate[m, k].item()
        assert_close(silu_mul_ref(gate, up)[m, k], x / (1 + math.exp(-x)) * up[m, k].item(), rtol=8 * 2**-53)


def test_ref_is_torchs():
    gate, up = make(7, 131)
    assert_close(silu_mul_ref(gate, up), F.silu(gate.double()) * up.double(), rtol=8 * 2**-53)


@kinds
def test_cpu_default_is_the_reference(quantize):
    gate, up = make(3, 63)
    assert agrees(silu_mul(gate, up, quantize=quantize), _reference(gate, up), quantize)


@kinds
def test_special_values_stay_in_their_rows(run, quantize):
    """The far ends of exp, at which it overflows and vanishes; NaN and inf."""
    gate, up = make(6, 65, torch.float32, run.device)
    gate[1], up[1] = torch.linspace(-200, 200, 65), 1.0
    gate[2, 3], up[3, 64], gate[4, 0] = torch.nan, torch.inf, torch.inf
    result = run(silu_mul, gate, up, quantize=quantize, impl="triton")
    (y, error), kept = _reference(gate, up), [0, 1, 2, 5]  # in rows 3 and 4 the bound itself is inf
    part = tuple(each if each is None else each[kept] for each in result)
    assert agrees(part, (y[kept], error[kept]), quantize)
    for row, column in ((3, 64), (4, 0)):
        assert result[1][row].isnan() if quantize else result[0][row, column].isinf()


def test_transposed_inputs_match_the_reference(run):
    gate, up = make(65, 131, torch.float16, run.device)
    result = run(silu_mul, gate.T, up.T, impl="triton")
    assert agrees(result, _reference(gate.T, up.T), None)


def test_empty_inputs_give_empty_results():
    assert silu_mul(torch.empty(0, 5), torch.empty(0, 5))[0].shape == (0, 5)
    assert silu_mul(torch.empty(3, 0), torch.empty(3, 0))[0].shape == (3, 0)


X = torch.zeros(3, 7)
REFUSED = {
    "float64": (dict(gate=X.double(), up=X.double()), TypeError, "got gate torch.float64 and up torch.float64"),
    "two types": (dict(up=X.half()), TypeError, "got gate torch.float32 and up torch.float16"),
    "two shapes": (dict(up=X[:2]), ValueError, r"got gate \[3, 7\] and up \[2, 7\]"),
    "nothing to scale": (dict(gate=X[:, :0], up=X[:, :0], quantize="int8"), ValueError, "K of 1 or more where"),
    "two devices": (dict(up=X.to("meta")), ValueError, "got up on meta and gate on cpu"),
    "int4": (dict(quantize="int4"), NotImplementedError, "got quantize 'int4'"),
    "long rows": (
        dict(gate=torch.zeros(1, MAX_K + 1), up=torch.zeros(1, MAX_K + 1), quantize="fp8"),
        NotImplementedError,
        "got K = 32769 to quantize, expected at most 32768",
    ),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        silu_mul(**{"gate": X, "up": X} | change)
