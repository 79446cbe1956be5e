"""Every tile shape and dtype of the W8A8 product becomes machine code for its architecture, without a GPU."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gpu_kernels.gemm.checks import FLOATS
from gpu_kernels.gemm.code_gemm_triton import code_launch
from gpu_kernels.gemm.w8a8_gemm import Operands
from gpu_kernels.gemm.w8a8_gemm_configs import CONFIGS, SHARED_BYTES, Config, row
from gpu_kernels.proof.compile import compile_launch, resource_usage

ELF = b"\x7fELF"
TILES = [
    pytest.param(arch, largest or 4096, config, id=f"sm_{arch}-M{largest or 4096}-{config}")
    for arch, rows in CONFIGS.items()
    if arch in (80, 90)  # sm_100 has the rows of sm_90
    for largest, candidates in rows
    for config in candidates
]
FIRST_90 = [tile for tile in TILES if tile.values[0] == 90 and tile.values[2] == row(90, tile.values[1])[1][0]]
OTHERS = pytest.mark.exhaustive("a minute of compilation; the tile shape that is taken first is compiled in every run")
LEAST_90, *LARGER_90 = FIRST_90
dtype_id = {"ids": lambda dtype: str(dtype).removeprefix("torch.")}


def meta(*shape, dtype):
    return torch.empty(*shape, dtype=dtype, device="meta")


def compile_w8a8(arch, M, config, *, K=4096, out_dtype=torch.bfloat16, bias_dtype=None):
    operands = Operands(
        meta(M, K, dtype=torch.int8),
        meta(M, dtype=torch.float32),
        meta(4096, K, dtype=torch.int8),
        meta(4096, dtype=torch.float32),
        bias=bias_dtype and meta(4096, dtype=bias_dtype),
        out_dtype=out_dtype,
    )
    (launch,) = code_launch(operands, operands.empty(), config, arch)
    return compile_launch(launch, arch)


def exhaustive(tiles):
    return [pytest.param(*tile.values, id=tile.id, marks=OTHERS) for tile in tiles]


@pytest.mark.parametrize("arch, M, config", [*FIRST_90, *exhaustive(tile for tile in TILES if tile not in FIRST_90)])
def test_w8a8_tiles(arch, M, config, tmp_path):
    """int8 tensor-core instructions, tiles fetched ahead, nothing spilled, and the program fits its multiprocessor."""
    wide = arch == 90 and config.block_m >= 64  # a warpgroup's product has 64 rows
    product = r"wgmma\.mma_async\S*\.s32\.s8\.s8" if wide else r"mma\.sync\S*\.s32\.s8\.s8\.s32"
    row_sizes = {"even": 4096, "odd": 4112}
    with ThreadPoolExecutor() as pool:  # LLVM and the assembler leave Python to the other
        both = pool.map(lambda K: compile_w8a8(arch, M, config, K=K), row_sizes.values())
    for name, compiled in zip(row_sizes, both, strict=True):
        assert compiled.asm["cubin"].startswith(ELF), name
        assert re.search(product, compiled.asm["ptx"]), name
        assert "cp.async" in compiled.asm["ptx"], name
        usage = resource_usage(compiled.asm["cubin"], tmp_path)
        assert 0 < usage["REG"] <= 255 and usage["STACK"] == usage["LOCAL"] == 0, name
        assert compiled.metadata.shared <= config.shared_bytes <= SHARED_BYTES[arch], name


# Every type of result and every type of bias, and no bias, once. The types are converted in the same way in each tile.
@pytest.mark.parametrize(
    "out_dtype, bias_dtype", list(zip((*FLOATS, torch.bfloat16), (None, *FLOATS), strict=True)), **dtype_id
)
@pytest.mark.parametrize("arch, M, config", [LEAST_90, *exhaustive(LARGER_90)])
def test_w8a8_dtypes(arch, M, config, out_dtype, bias_dtype, tmp_path):
    compiled = compile_w8a8(arch, M, config, out_dtype=out_dtype, bias_dtype=bias_dtype)
    assert compiled.asm["cubin"].startswith(ELF)
    assert resource_usage(compiled.asm["cubin"], tmp_path)["STACK"] == 0


def test_w8a8_odd_row_length():
    """K = 131 leaves no 16-byte loads: right and slow, but it compiles."""
    assert compile_w8a8(90, 16, row(90, 16)[1][0], K=131).asm["cubin"].startswith(ELF)


def test_resource_usage_sees_spills(tmp_path):
    """The check above can fail: 255 registers cannot hold a [256, 256] accumulator over 4 warps."""
    tile = Config(256, 256, 64, 8, 4, 2)
    assert resource_usage(compile_w8a8(90, 4096, tile).asm["cubin"], tmp_path)["STACK"] > 0
