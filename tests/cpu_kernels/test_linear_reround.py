"""K-quants for many tokens: rounded to int8 with one scale for 256 inputs of a row, as the oracle rounds them."""

from functools import partial

import numpy as np
import pytest
from support.block_weights import gguf_values, random_blocks
from support.close import assert_close
from support.random_linear import assert_a_token_does_not_see_its_batch

import cpu_kernels
from cpu_kernels.linear import linear_ref, reround_bound, rounding_bound
from qbench.kernels.linear import LARGEST, rerounded
from quant.formats import get_format

FORMATS = list(LARGEST)
# The best of the instruction sets that round to int8: above it there are tiles of bfloat16.
BEST = max((isa for isa in cpu_kernels.features() if isa != "amx"), key=cpu_kernels.features().index)


def pack(format_name: str, blocks: np.ndarray) -> cpu_kernels.PackedLinear:
    row_size = blocks.shape[1] // get_format(format_name).block_bytes * 256
    return cpu_kernels.PackedLinear(format_name, {"blocks": blocks}, (len(blocks), row_size))


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_weight_moves_by_half_a_code_and_its_fractions_at_most(format_name):
    blocks = random_blocks(format_name, 35, 1024)
    codes, scale = rerounded(format_name, blocks)
    assert np.abs(codes).max() <= 127
    spread = np.repeat(scale, 256, axis=1)
    error = np.abs(codes * spread.astype(np.float64) - gguf_values(format_name, blocks))
    assert (error <= reround_bound(spread, LARGEST[format_name])).all()
    assert (error / spread).max() > 0.45, "the bound is near what happens"


@pytest.mark.parametrize("format_name", FORMATS)
def test_codes_and_scales_are_the_oracles_bit_for_bit(isa, matmul, format_name):
    """A token of one 127 has the scale 1 and reads one column: 127 * code, rounded once when the scale multiplies
    it.
    """
    blocks = random_blocks(format_name, 35, 768)
    codes, scale = rerounded(format_name, blocks)
    y = matmul(pack(format_name, blocks), np.float32(127) * np.eye(768, dtype=np.float32), isa, path="int8x256")
    assert_close(y, ((127 * codes).astype(np.float32) * np.repeat(scale, 256, axis=1)).T)


@pytest.mark.parametrize("num_rows", [1, 15, 17, 63], ids="N={}".format)
@pytest.mark.parametrize("format_name", FORMATS)
def test_matches_oracle(isa, matmul, format_name, num_rows):
    for row_size in (256, 768):
        blocks = random_blocks(format_name, num_rows, row_size)
        codes, scale = rerounded(format_name, blocks)
        values = codes * np.repeat(scale, 256, axis=1).astype(np.float64)
        x = np.random.default_rng(1).standard_normal((27, row_size)).astype(np.float32)
        expected, bound = linear_ref(x, values), rounding_bound(x, values)
        for num_tokens in (1, 2, 5, 13, 27):
            out = np.full((num_tokens, num_rows), np.nan, np.float32)
            matmul(pack(format_name, blocks), x[:num_tokens], isa, path="int8x256", out=out)
            assert_close(out, expected[:num_tokens], atol=bound[:num_tokens])


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_token_does_not_see_its_batch(isa, matmul, format_name):
    packed = pack(format_name, random_blocks(format_name, 35, 768))
    product = partial(matmul, packed, isa=isa, path="int8x256")
    assert_a_token_does_not_see_its_batch(131, product, product)


@pytest.mark.parametrize("format_name", FORMATS)
def test_extreme_scales_and_codes_do_not_wrap(isa, matmul, format_name):
    """Rows of the largest codes and inner scales, rows of zeros, and rows of all bytes 1 under both signs."""
    fill = np.array([255, 0, 1, 128], np.uint8)[np.arange(32) % 4]
    blocks = np.ones_like(random_blocks(format_name, 32, 256)) * fill[:, None]
    fmt = get_format(format_name)
    for first in {"q2_k": (80, 82), "q3_k": (108,), "q6_k": (208,)}.get(format_name, (0, 2)):
        for row in range(32):
            size = 0 if row // 8 % 2 and first else 2.0**-24 * 7 ** (row % 8)
            half = np.float16(-size if row // 4 % 2 else size)
            blocks[row, first : first + 2] = np.frombuffer(half.tobytes(), np.uint8)
    codes, scale = rerounded(format_name, blocks)
    assert np.abs(codes).max() <= 127 and fmt.block_bytes == blocks.shape[1]
    y = matmul(pack(format_name, blocks), np.float32(127) * np.eye(256, dtype=np.float32), isa, path="int8x256")
    assert_close(y, ((127 * codes).astype(np.float32) * np.repeat(scale, 256, axis=1)).T)


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["nan", "inf"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_non_finite_values_stay_in_their_token_or_row(isa, matmul, format_name, bad):
    blocks = random_blocks(format_name, 19, 256)
    x = np.random.default_rng(3).standard_normal((7, 256)).astype(np.float32)
    clean = matmul(pack(format_name, blocks), x, isa, path="int8x256")
    x[2, 37] = bad
    first = {"q2_k": 80, "q3_k": 108, "q6_k": 208}.get(format_name, 0)
    blocks[5, first : first + 2] = np.frombuffer(np.float16(bad).tobytes(), np.uint8)
    y = matmul(pack(format_name, blocks), x, isa, path="int8x256")
    assert np.isnan(y[2]).all()
    assert not np.isfinite(y[:, 5]).any()
    keep = np.ix_(np.arange(7) != 2, np.arange(19) != 5)
    assert_close(y[keep], clean[keep])


@pytest.mark.parametrize("format_name", FORMATS)
def test_many_tokens_are_rounded_unless_asked_not_to(monkeypatch, format_name):
    monkeypatch.delenv("QBENCH_LINEAR_PATH", raising=False)
    monkeypatch.delenv("QBENCH_K_QUANT_COMPUTE", raising=False)
    packed = pack(format_name, random_blocks(format_name, 16, 256))
    monkeypatch.setenv("QBENCH_ISA", BEST)
    rounds = [packed.choice(num_tokens)[1] == "int8x256" for num_tokens in range(1, 513)]
    assert not rounds[0] and rounds == sorted(rounds), "one crossover"
    isa = packed.choice(512)[0]
    # Q6_K's own error is too small for it, and AVX2 is faster with codes as they are stored.
    assert rounds[-1] == (format_name != "q6_k" and isa != "avx2")
    monkeypatch.setenv("QBENCH_K_QUANT_COMPUTE", "exact")
    assert packed.choice(512)[1] == "tile"
    assert packed.choice(512, path="int8x256")[1] == "int8x256"
    monkeypatch.setenv("QBENCH_K_QUANT_COMPUTE", "int8x256")
    assert packed.choice(512)[1] == "int8x256"
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "tile")
    assert packed.choice(512)[1] == "tile"
    monkeypatch.delenv("QBENCH_LINEAR_PATH")
    monkeypatch.setenv("QBENCH_K_QUANT_COMPUTE", "int4")
    with pytest.raises(RuntimeError, match="QBENCH_K_QUANT_COMPUTE=int4: expected int8x256 or exact"):
        packed.choice(512)
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "int8x256")
    with pytest.raises(ValueError, match="QBENCH_LINEAR_PATH=int8x256: expected direct, tile or bf16"):
        packed.choice(512)


@pytest.mark.parametrize(
    "format_name, parts",
    [
        ("q4_0", {"blocks": random_blocks("q4_0", 16, 256)}),
        ("bf16", {"blocks": np.zeros((16, 512), np.uint8)}),
        ("w8a8", {"weight": np.zeros((16, 256), np.int8), "weight_scale": np.ones((16, 1), np.float32)}),
    ],
)
def test_a_format_without_such_products_refuses_them(format_name, parts):
    packed = cpu_kernels.PackedLinear(format_name, parts, (16, 256))
    with pytest.raises(ValueError, match=f"path=int8x256: only K-quants and trellis codes have it, not {format_name}"):
        packed.matmul(np.zeros((512, 256), np.float32), path="int8x256")
