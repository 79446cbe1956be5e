"""Per-token quantization becomes machine code that reads wide and divides exactly, without a GPU."""

import re

import pytest
import torch

from gpu_kernels.fused.quantize_per_token import IN_DTYPES
from gpu_kernels.fused.quantize_per_token_triton import quantize_per_token_launch
from gpu_kernels.fused.row_codes import CODE_DTYPES
from gpu_kernels.proof.compile import compile_launch, resource_usage

ELF = b"\x7fELF"
dtype_id = {"ids": lambda value: str(value).removeprefix("torch.")}


def meta(*shape, dtype):
    return torch.empty(*shape, dtype=dtype, device="meta")


KINDS = [*((dtype, "int8") for dtype in IN_DTYPES), (torch.bfloat16, "fp8")]


@pytest.mark.parametrize("K", [4096, 131])
@pytest.mark.parametrize("dtype, codes", KINDS, **dtype_id)
def test_quantize_per_token(dtype, codes, K, tmp_path):
    """Reads and writes 16 bytes at a time if rows allow it; divisions are rounded to nearest."""
    x, x_q, x_scale = meta(8, K, dtype=dtype), meta(8, K, dtype=CODE_DTYPES[codes]), meta(8, dtype=torch.float32)
    compiled = compile_launch(quantize_per_token_launch(x, x_q, x_scale, 90), 90)
    assert compiled.asm["cubin"].startswith(ELF)
    assert resource_usage(compiled.asm["cubin"], tmp_path)["STACK"] == 0
    assert "div.rn.f32" in compiled.asm["ptx"] and "div.full" not in compiled.asm["ptx"]
    if K == 4096:
        assert re.search(r"ld\.global\S*\.v4\.b32", compiled.asm["ptx"])
        assert re.search(r"st\.global\S*\.v4\.b32", compiled.asm["ptx"])
