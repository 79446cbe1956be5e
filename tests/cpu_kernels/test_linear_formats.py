"""Every format of blocks, in every instruction set and on both paths, against float64 on gguf's decoded weights."""

import numpy as np
import pytest
from support.block_weights import EXPONENTS, HALVES, SIMILAR, gguf_values, minima, random_blocks
from support.close import assert_close
from support.random_linear import assert_rows_are

import cpu_kernels
from cpu_kernels.linear import linear_ref, rounding_bound
from qbench.kernels.linear import LARGEST
from quant.formats import get_format

PATHS = ("direct", "tile")
OTHERS = pytest.mark.exhaustive("every instruction set takes seconds; every run has formats of the same code")
FORMATS = [
    pytest.param(name, marks=OTHERS if name in SIMILAR else ())
    for name in HALVES
    if cpu_kernels.has_packed_linear(name)
]


def pack(format_name: str, blocks: np.ndarray) -> cpu_kernels.PackedLinear:
    fmt = get_format(format_name)
    row_size = blocks.shape[1] // fmt.block_bytes * fmt.block_size
    return cpu_kernels.PackedLinear(format_name, {"blocks": blocks}, (len(blocks), row_size))


def row_sizes(format_name: str) -> tuple[int, ...]:
    """Less than a stretch of the tile path (512), one, and more: a last one that is not full"""
    return (256, 768) if get_format(format_name).block_size == 256 else (32, 96, 512, 1120)


@pytest.mark.parametrize("num_rows", [1, 15, 17, 63], ids="N={}".format)
@pytest.mark.parametrize("format_name", FORMATS)
def test_matches_oracle(isa, matmul, format_name, num_rows):
    for row_size in row_sizes(format_name):
        blocks = random_blocks(format_name, num_rows, row_size)
        packed, values = pack(format_name, blocks), gguf_values(format_name, blocks)
        x = np.random.default_rng(1).standard_normal((27, row_size)).astype(np.float32)
        expected, bound = linear_ref(x, values), rounding_bound(x, values, minima(format_name, blocks))
        for num_tokens in (1, 2, 3, 4, 5, 6, 7, 8, 13, 27):
            for path in PATHS:
                out = np.full((num_tokens, num_rows), np.nan, np.float32)
                matmul(packed, x[:num_tokens], isa, path=path, out=out)
                assert_close(out, expected[:num_tokens], atol=bound[:num_tokens])


@pytest.mark.parametrize("format_name", FORMATS)
def test_extreme_codes_do_not_saturate(isa, matmul, format_name):
    """Bytes of ones and of zeros hold the largest codes and scales; activations of the largest magnitude, one sign.

    0x77 is the largest level of MXFP4.
    """
    fill = np.array([0, 255, 0x77], np.uint8)[np.arange(32) % 3]
    blocks = fill[:, None] * np.ones_like(random_blocks(format_name, 32, 256))
    by_block = blocks.reshape(32, -1, get_format(format_name).block_bytes)
    for first in HALVES[format_name]:
        by_block[..., first : first + 2] = np.array([1], "<f2").view(np.uint8)
    if format_name in EXPONENTS:
        by_block[..., EXPONENTS[format_name]] = 128
    values = gguf_values(format_name, blocks)
    x = np.full((5, 256), 127, np.float32)
    x[1], x[2, ::2], x[3, :128] = -127, -127, -127
    bound = rounding_bound(x, values, minima(format_name, blocks))
    for path in PATHS:
        assert_close(matmul(pack(format_name, blocks), x, isa, path=path), linear_ref(x, values), atol=bound)


@pytest.mark.parametrize("num_rows", [64, 100, 131], ids="N={}".format)
@pytest.mark.parametrize("format_name", FORMATS)
def test_every_place_of_a_panel_among_its_neighbours(isa, matmul, format_name, num_rows):
    """Four panels are side by side, or the rest of four, each in several stretches, of which the last is short."""
    blocks = random_blocks(format_name, num_rows, 1280)
    values = gguf_values(format_name, blocks)
    x = np.random.default_rng(6).standard_normal((9, 1280)).astype(np.float32)
    expected, bound = linear_ref(x, values), rounding_bound(x, values, minima(format_name, blocks))
    for path in PATHS:
        assert_close(matmul(pack(format_name, blocks), x, isa, path=path), expected, atol=bound)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 127, 250])
def test_every_kind_of_power_of_two(isa, matmul, exponent):
    """The first two exponents of MXFP4 mean subnormal scales."""
    blocks = random_blocks("mxfp4", 35, 256)
    blocks.reshape(35, -1, 17)[..., 0] = exponent
    values = gguf_values("mxfp4", blocks)
    assert_close(pack("mxfp4", blocks).rows(np.arange(35)), values)
    x = np.random.default_rng(7).standard_normal((9, 256)).astype(np.float32) / 64
    for path in PATHS:
        y = matmul(pack("mxfp4", blocks), x, isa, path=path)
        # The product of both scales is subnormal, off by 2**-150 at most, and meets the sum of each of 8 steps.
        subnormal = 2.0**-150 * 8 * (32 * 12 * 127)
        assert_close(y, linear_ref(x, values), atol=rounding_bound(x, values) + subnormal)


@pytest.mark.parametrize("num_rows", [1, 16, 35], ids="N={}".format)
@pytest.mark.parametrize("format_name", FORMATS)
def test_rows_match_gguf(format_name, num_rows):
    blocks = random_blocks(format_name, num_rows, 768)
    assert_rows_are(gguf_values(format_name, blocks), pack(format_name, blocks).rows)


@pytest.mark.parametrize("format_name", FORMATS)
def test_packed_bytes_are_the_files_bytes(format_name):
    blocks = random_blocks(format_name, 48, 512)
    assert pack(format_name, blocks).nbytes == blocks.nbytes
    odd = random_blocks(format_name, 33, 512)
    packed = pack(format_name, odd)
    assert packed.nbytes == odd.nbytes // 33 * 48 == cpu_kernels.packed_linear_bytes(format_name, (33, 512))


def test_more_tokens_than_are_multiplied_at_once(isa, matmul):
    blocks = random_blocks("q4_k", 17, 256)
    x = np.random.default_rng(5).standard_normal((1031, 256)).astype(np.float32)
    values = gguf_values("q4_k", blocks)
    y = matmul(pack("q4_k", blocks), x, isa, path="tile")
    assert_close(y, linear_ref(x, values), atol=rounding_bound(x, values, minima("q4_k", blocks)))


@pytest.mark.parametrize("format_name", FORMATS)
def test_few_tokens_take_the_direct_path_and_many_the_other(monkeypatch, format_name):
    monkeypatch.delenv("QBENCH_LINEAR_PATH", raising=False)
    monkeypatch.setenv("QBENCH_K_QUANT_COMPUTE", "exact")
    packed = pack(format_name, random_blocks(format_name, 16, 256))
    paths = [packed.choice(num_tokens)[1] for num_tokens in range(1, 513)]
    # The variable asks for stored weights of K-quants only.
    rounds = "amx" in cpu_kernels.features() and format_name not in LARGEST
    assert paths[0] == "direct" and paths[-1] == ("bf16" if rounds else "tile")
    assert sorted(paths, key=["direct", "tile", "bf16"].index) == paths, "at most two crossovers"
