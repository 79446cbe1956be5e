"""8-bit codes as float16, and rows of queries that are scaled to meet them."""

import torch
import triton
import triton.language as tl

from gpu_kernels.attention.codes_triton import INT8_ASM, half_codes, half_rows
from gpu_kernels.launch import Launch


@triton.jit
def codes_kernel(codes_ptr, out_ptr, FORMAT: tl.constexpr, COMPILED: tl.constexpr):
    o = tl.arange(0, 256)
    tl.store(out_ptr + o, half_codes(tl.load(codes_ptr + o), FORMAT, COMPILED))


def run_codes(codes, out, compiled):
    arguments = {"codes_ptr": codes, "out_ptr": out, "FORMAT": "int8", "COMPILED": compiled}
    Launch(codes_kernel, (1,), arguments, 1).run(out.device)


def test_all_int8_codes(run):
    codes = torch.arange(-128, 128, device=run.device).to(torch.int8)
    for compiled in [False] if run.interpreted else [False, True]:
        out = torch.full((256,), torch.nan, dtype=torch.float16, device=run.device)
        run(run_codes, codes, out, compiled)
        assert torch.equal(out, codes.half())


def byte_permute(low, high, selector):
    """PTX's prmt.b32 on Python numbers."""
    bytes_of = [(low | high << 32) >> 8 * i & 0xFF for i in range(8)]
    return sum(bytes_of[selector >> 4 * i & 7] << 8 * i for i in range(4))


def test_the_assembly_makes_all_int8_codes():
    """Its instructions on numbers: the interpreter knows no PTX."""
    selectors = [int(line.split()[-1].rstrip(";"), 16) for line in INT8_ASM.value.splitlines() if "prmt" in line]
    assert len(selectors) == 2
    for first in range(-128, 128, 4):
        codes = torch.arange(first, first + 4, dtype=torch.int8)
        turned = int(codes.view(torch.int32)) & 0xFFFFFFFF ^ 0x80808080
        made = torch.tensor([byte_permute(turned, 0x64646464, selector) for selector in selectors], dtype=torch.int64)
        halves = torch.stack([made & 0xFFFF, made >> 16], dim=1).flatten().to(torch.int16).view(torch.float16)
        base = torch.tensor([0x6480], dtype=torch.int16).view(torch.float16)
        assert torch.equal(halves - base, codes.half())


@triton.jit
def rows_kernel(x_ptr, out_ptr, unit_ptr):
    o_row, o = tl.arange(0, 16), tl.arange(0, 16)
    b_half, b_unit = half_rows(tl.load(x_ptr + o_row[:, None] * 16 + o[None, :]))
    tl.store(out_ptr + o_row[:, None] * 16 + o[None, :], b_half)
    tl.store(unit_ptr + o_row, b_unit)


def run_rows(x, out, unit):
    Launch(rows_kernel, (1,), {"x_ptr": x, "out_ptr": out, "unit_ptr": unit}, 1).run(x.device)


def test_rows_of_any_bfloat16_come_back(run):
    """Each within 2**-39 of its row's largest, and exactly down to 2**-32 of it; inf and NaN stay."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 16, generator=generator) * 2.0 ** torch.randint(-30, 1, (16, 16), generator=generator)
    x = (x * 2.0 ** torch.linspace(-90, 90, 16)[:, None]).bfloat16()
    x[3], x[5, 2], x[6, 4] = 0.0, torch.inf, torch.nan
    x = x.to(run.device)
    out = torch.full((16, 16), -1.0, dtype=torch.float16, device=run.device)
    unit = torch.full((16,), -1.0, device=run.device)
    run(run_rows, x, out, unit)
    back, largest = out.double() * unit.double()[:, None], x.double().abs().amax(1, keepdim=True)
    special = torch.tensor([5, 6])
    rest = torch.ones(16, dtype=torch.bool).index_fill(0, special, False)
    assert (unit.log2() == unit.log2().round()).all()
    assert ((back - x.double()).abs()[rest] <= 2.0**-39 * largest[rest]).all()
    exact = (x.double().abs() >= 2.0**-32 * largest) & rest[:, None].to(run.device)
    assert exact.sum() > 150 and torch.equal(back[exact], x.double()[exact])
    assert out[5, 2] == torch.inf and out[6, 4].isnan() and out[3].count_nonzero() == 0
    assert out[6].isfinite().sum() == 15
