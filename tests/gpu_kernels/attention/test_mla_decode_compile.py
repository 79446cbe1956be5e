"""Every tile shape of MLA decode becomes machine code that uses its GPU, without a GPU."""

import re

import pytest
import torch

from gpu_kernels.attention.configs import SHARED_BYTES
from gpu_kernels.attention.mla_decode import Operands
from gpu_kernels.attention.mla_decode_triton import CONFIGS, launches
from gpu_kernels.proof.compile import compile_launch, resource_usage

TILES = [
    pytest.param(form, config, id=f"{form}-{config}".replace(" ", ""))
    for (arch, form), rows in CONFIGS.items()
    if arch == 90  # proof/test_compile.py compiles some for the others
    for _, candidates in rows
    for config in candidates
]
OTHERS = pytest.mark.exhaustive("compilation; the first tile shape of each form is compiled in every run")
FIRST = [next(tile for tile in TILES if tile.values[0] == form) for form in ("16 bit", "8 bit")]


def compile_tile(form, config):
    def meta(*shape, dtype=torch.bfloat16):
        return torch.empty(*shape, dtype=dtype, device="meta")

    cache = meta(9, 64, 656, dtype=torch.uint8) if form == "8 bit" else meta(9, 64, 576)
    pages = {"block_table": meta(2, 5, dtype=torch.int32), "seq_lens": meta(2, dtype=torch.int32)}
    operands = Operands(meta(2, 1, 128, 576), cache, 0.1, max_seq_len=256, num_kv_splits=2, **pages)
    return compile_launch(launches(operands, *operands.empty(), config, 90)[0], 90)


@pytest.mark.parametrize(
    "form, config",
    [*FIRST, *(pytest.param(*tile.values, id=tile.id, marks=OTHERS) for tile in TILES if tile not in FIRST)],
)
def test_tiles_compile_to_tensor_core_instructions(form, config, tmp_path):
    """Tensor cores; a 16-bit latent is fetched once, past the registers; addresses alone are spilled."""
    compiled = compile_tile(form, config)
    ptx = compiled.asm["ptx"]
    is_wgmma = config.block_r >= 64  # a warpgroup's product has 64 rows
    assert re.search(r"wgmma\.mma_async\S*\.bf16" if is_wgmma else r"mma\.sync\S*\.bf16", ptx)
    # Codes and latents in loads of 16 bytes per thread.
    assert "cp.async.cg.shared.global" in ptx if form == "16 bit" else re.search(r"ld\.global\S*\.v4\.b32", ptx)
    if form == "8 bit":
        assert "cvt.rn.f16x2.e4m3x2" in ptx
    usage = resource_usage(compiled.asm["cubin"], tmp_path)
    assert usage["STACK"] <= (288 if is_wgmma else 64), usage
    assert compiled.metadata.shared * config.programs <= SHARED_BYTES[90]
    assert usage["REG"] * 32 * config.num_warps * config.programs <= 65536  # a multiprocessor's registers

    if form == "16 bit":  # the fetched tiles that mla_decode_triton.py counts have their shared memory
        tiles = config.num_stages - 1
        assert compiled.metadata.shared >= (config.block_r + tiles * config.block_n) * 2 * 576
