from functools import partial

import pytest
import torch

from gpu_kernels import dispatch
from gpu_kernels.decode import linears, llm_int8
from gpu_kernels.gemm.split_k import make_workspace

CODES, SCALE, X = torch.zeros(3, 64, dtype=torch.int8), torch.ones(3), torch.ones(2, 64).half()
NONE = {"known": torch.zeros(0, dtype=torch.int64), "known_weight": torch.zeros(3, 0)}
PRODUCTS = {
    "w8a8_gemm": linears.Int8Linear,
    "llm_int8_gemm": partial(llm_int8.LlmInt8Linear, **NONE),
}


@pytest.mark.parametrize("made", PRODUCTS.values(), ids=PRODUCTS.keys())
def test_products_of_few_tokens_share_a_workspace(monkeypatch, made):
    """Without one each call would zero its own, in one launch more."""
    workspace, given = make_workspace("cpu"), []
    found = dispatch.implementation

    def noted(*which):
        return lambda operands, y: given.append(operands) or found(*which)(operands, y)

    monkeypatch.setattr(dispatch, "implementation", noted)
    weight = linears.Int8Weight(CODES, SCALE, torch.float16, workspace=workspace)
    assert made(weight)(X).shape == (2, 3)
    assert len(given) == 1 and given[0].workspace is workspace
