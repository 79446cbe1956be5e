from functools import partial

import pytest
import torch

from gpu_kernels import dispatch
from gpu_kernels.decode import linears
from gpu_kernels.gemm.split_k import make_workspace

CODES, SCALE, X = torch.zeros(3, 64, dtype=torch.int8), torch.ones(3), torch.ones(2, 64).half()
NONE = {"known": torch.zeros(0, dtype=torch.int64), "known_weight": torch.zeros(3, 0)}
PRODUCTS = {
    "w8a8_gemm": linears.CodeLinear,
    "llm_int8_gemm": partial(linears.LlmInt8Linear, **NONE),
}


def test_fp8_codes_by_hand():
    """Exact values of e4m3, so that the product is exact; by token, in blocks of 128, and with one static scale."""
    weight = torch.tensor([[1.0, -2.0, 0.5, 448.0]]).repeat(1, 64)
    x = torch.tensor([[448.0, 1.0, 2.0, -1.0], [7.0, 0.0, 0.0, 0.5]]).repeat(1, 64)
    expected = x @ weight.T
    codes = weight.to(torch.float8_e4m3fn)
    of_row, of_blocks = (linears.CodeWeight(codes, torch.ones(shape), torch.float32) for shape in ((1,), (1, 2)))
    by_token, static = (
        linears.CodeLinear(of_row),
        linears.CodeLinear(of_row, inputs="static", input_scale=torch.ones(1)),
    )
    assert by_token.codes == "fp8" and static.codes is None and by_token.name == "fp8_gemm[reference]"
    for linear in (by_token, linears.CodeLinear(of_blocks, inputs="per_group"), static):
        assert torch.equal(linear(x), expected)
    assert linears.CodeLinear(of_row, inputs="static", input_scale=torch.full((1,), 0.5))(x)[0, 0] < expected[0, 0]


@pytest.mark.parametrize("made", PRODUCTS.values(), ids=PRODUCTS.keys())
def test_products_of_few_tokens_share_a_workspace(monkeypatch, made):
    """Without one each call would zero its own, in one launch more."""
    workspace, given = make_workspace("cpu"), []
    found = dispatch.implementation

    def noted(*which):
        return lambda operands, y: given.append(operands) or found(*which)(operands, y)

    monkeypatch.setattr(dispatch, "implementation", noted)
    weight = linears.CodeWeight(CODES, SCALE, torch.float16, workspace=workspace)
    assert made(weight)(X).shape == (2, 3)
    assert len(given) == 1 and given[0].workspace is workspace
