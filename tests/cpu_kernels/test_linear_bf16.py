"""The path bf16: codes of every format unpacked to bfloat16 tiles, which meet many tokens rounded to bfloat16."""

from functools import partial

import numpy as np
import pytest
from support.block_weights import HALVES, gguf_values, minima, random_blocks
from support.close import assert_close
from support.isas import isas_of
from support.random_linear import assert_a_token_does_not_see_its_batch, random_qtensor

import cpu_kernels
from cpu_kernels.linear import bf16_bound, bf16_weight_bound, linear_bf16_ref
from cpu_kernels.linear_float import round_to_bf16_ref, rounding_bound
from qbench.kernels.linear import random_inputs
from qbench.kernels.linear_trellis import random_inputs as random_trellis_inputs
from qbench.kernels.linear_trellis import trellis_bf16_ref, trellis_ref
from quant.formats import TrellisFormat, dequantize, get_format
from quant.qtensor import QTensor

tiles = pytest.mark.parametrize("isa", [param for param in isas_of("linear_q8_0") if param.values[0] == "amx"])
BLOCKS = [name for name in HALVES if cpu_kernels.has_packed_linear(name)]
# Steps of a group that divide a block of 16 tiles of K, that do not, and one group per row.
GROUPS = [
    ("w2g32", 96),
    ("w3g96-asym", 672),
    ("w4g128", 384),
    ("w4g1024", 1024),
    ("w8g160", 800),
    ("w8g64-asym", 192),
    ("w4", 545),
    ("w3-asym", 600),
    ("w8-asym", 70),
]
ROW_SIZES = {256: (256, 768), 32: (32, 96, 544)}


def pack_blocks(name: str, num_rows: int, row_size: int):
    """The packed weight, its values and its minima."""
    blocks = random_blocks(name, num_rows, row_size)
    packed = cpu_kernels.PackedLinear(name, {"blocks": blocks}, (num_rows, row_size))
    return packed, gguf_values(name, blocks), minima(name, blocks)


def pack_groups(name: str, row_size: int, act_order: bool = False) -> tuple[cpu_kernels.PackedLinear, np.ndarray]:
    qtensor, _ = random_inputs(get_format(name), 1, 35, row_size)
    if act_order:
        groups = np.arange(row_size) // get_format(name).block_size
        g_idx = np.random.default_rng(3).permutation(groups).astype(np.int32)
        qtensor = QTensor(qtensor.format, qtensor.shape, qtensor.parts, {"g_idx": g_idx})
    packed = cpu_kernels.PackedLinear(qtensor.format, qtensor.parts | qtensor.shared, qtensor.shape)
    return packed, dequantize(qtensor)


def pack_bf16(num_rows: int, row_size: int) -> cpu_kernels.PackedLinear:
    qtensor = random_qtensor("bf16", num_rows, row_size)
    return cpu_kernels.PackedLinear(qtensor.format, qtensor.parts, qtensor.shape)


def assert_products(matmul, isa: str, packed: cpu_kernels.PackedLinear, values: np.ndarray, minimum=None) -> None:
    """The weights that the tiles hold are near the stored ones, and the only roundings are those of float32 sums."""
    num_rows, row_size = values.shape
    values = values.astype(np.float32)
    product = partial(matmul, packed, isa=isa, path="bf16")
    held = product(np.eye(row_size, dtype=np.float32)).T
    assert_close(held, round_to_bf16_ref(values), atol=bf16_weight_bound(values, minimum))
    x = np.random.default_rng(1).standard_normal((67, row_size)).astype(np.float32)
    seen = round_to_bf16_ref(x)
    expected = seen.astype(np.float64) @ held.astype(np.float64).T
    assert_close(expected, linear_bf16_ref(x, values), atol=bf16_bound(x, values, minimum))
    for num_tokens in (1, 15, 16, 17, 32, 33, 67):
        out = np.full((num_tokens, num_rows), np.nan, np.float32)
        product(x[:num_tokens], out=out)
        assert_close(out, expected[:num_tokens], atol=rounding_bound(seen, held)[:num_tokens])


@tiles
@pytest.mark.parametrize("num_rows", [1, 17, 64], ids="N={}".format)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_match_the_oracle(isa, matmul, name, num_rows):
    for row_size in ROW_SIZES.get(get_format(name).block_size, (256,)):
        assert_products(matmul, isa, *pack_blocks(name, num_rows, row_size))


@tiles
@pytest.mark.parametrize("name, row_size", GROUPS)
def test_groups_match_the_oracle(isa, matmul, name, row_size):
    assert_products(matmul, isa, *pack_groups(name, row_size))


@tiles
@pytest.mark.parametrize("name", ["w4g128", "w4g128-asym"])
def test_features_may_be_in_any_order(isa, matmul, name):
    assert_products(matmul, isa, *pack_groups(name, 384, act_order=True))


@tiles
@pytest.mark.parametrize("name", ["q4_0", "q6_k", "q2_k"])
def test_a_token_does_not_see_its_batch(isa, matmul, name):
    packed, *_ = pack_blocks(name, 80, 768)
    product = partial(matmul, packed, isa=isa, path="bf16")
    assert_a_token_does_not_see_its_batch(37, product, product)


@tiles
def test_more_tokens_and_panels_than_share_the_cache(isa, matmul):
    """More than one chunk of 512 tokens and, on any number of threads, more than one group of 32 panels."""
    packed, values, _ = pack_blocks("q4_0", 1100, 32)
    x = np.random.default_rng(5).standard_normal((531, 32)).astype(np.float32)
    y = matmul(packed, x, isa, path="bf16")
    assert_close(y, linear_bf16_ref(x, values), atol=bf16_bound(x, values))


@tiles
@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["nan", "inf"])
def test_non_finite_values_stay_in_their_token_or_row(isa, matmul, bad):
    blocks = random_blocks("q8_0", 19, 64)
    x = np.random.default_rng(3).standard_normal((7, 64)).astype(np.float32)

    def product() -> np.ndarray:
        return matmul(cpu_kernels.PackedLinear("q8_0", {"blocks": blocks}, (19, 64)), x, isa, path="bf16")

    clean = product()
    x[2, 37] = bad
    blocks[5, :2] = np.frombuffer(np.float16(bad).tobytes(), np.uint8)
    y = product()
    assert not np.isfinite(y[2]).any() and not np.isfinite(y[:, 5]).any()
    keep = np.ix_(np.arange(7) != 2, np.arange(19) != 5)
    assert_close(y[keep], clean[keep])


# A format for each way from sums to outputs, and 40 rows, whose last half of a tile is empty.
@tiles
@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q2_k", "q6_k", "w4", "w8-asym"])
@pytest.mark.parametrize("num_rows", [64, 40], ids="F={}".format)
@pytest.mark.parametrize("act_order", [False, True], ids=["in order", "act order"])
def test_gated_products_are_their_parts(isa, name, num_rows, act_order):
    """silu(gate) * up in one pass, rounded to bfloat16 once: the bits of three passes."""
    gate, up = (random_qtensor(name, num_rows, 512, seed=seed) for seed in (0, 1))
    down = pack_groups("w4g32", num_rows, act_order)[0] if num_rows % 32 == 0 else pack_bf16(35, num_rows)
    packed = [cpu_kernels.PackedLinear(one.format, one.parts, one.shape) for one in (gate, up)]
    x = np.random.default_rng(num_rows).standard_normal((515, 512)).astype(np.float32)
    assert packed[0].choice(len(x)) == (isa, "bf16")
    y = cpu_kernels.feed_forward(
        cpu_kernels.LinearGroup(packed, [None, None]), cpu_kernels.LinearGroup([down], [None]), x
    )
    # 512 tokens at a time, and the last three on the same path
    products = [np.concatenate([one.matmul(part, path="bf16") for part in (x[:512], x[512:])]) for one in packed]
    inner = cpu_kernels.silu_mul(*products)
    path = down.choice(len(x))[1]
    assert_close(y, np.concatenate([down.matmul(part, path=path) for part in (inner[:512], inner[512:])]))


@tiles
def test_every_nan_of_half_precision_stays_nan(isa, matmul):
    """A rounding by integers would turn the largest payload into a number."""
    scales = np.arange(2**16, dtype=np.uint16)
    scales = scales[np.isnan(scales.view(np.float16))]
    blocks = np.zeros((len(scales), 34), np.uint8)
    blocks[:, :2] = scales.view(np.uint8).reshape(-1, 2)
    blocks[:, 2:] = 1
    packed = cpu_kernels.PackedLinear("q8_0", {"blocks": blocks}, (len(scales), 32))
    assert np.isnan(matmul(packed, np.ones((1, 32), np.float32), isa, path="bf16")).all()


@tiles
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_trellis_codes_match_the_oracle(isa, matmul, bits):
    weight, x = random_trellis_inputs(TrellisFormat(bits, 16), 37, 48, 336)
    packed = cpu_kernels.PackedLinear(weight.format, weight.parts, weight.shape)
    y = matmul(packed, x, isa, path="bf16")
    expected, bound = trellis_bf16_ref(weight, x)
    assert_close(y, expected, atol=bound)
    other, _ = trellis_ref(weight, x, rounded=True)
    assert (np.abs(y - other) > bound).any(), "the bound tells inputs of 16 bits from those of 8"


def test_weights_that_are_asked_to_be_exact_are_not_rounded(monkeypatch):
    blocks = random_blocks("q4_k", 16, 256)
    exact = cpu_kernels.PackedLinear("q4_k", {"blocks": blocks}, (16, 256), exact=True)
    assert exact.choice(512)[1] == "tile"
    packed = cpu_kernels.PackedLinear("q4_k", {"blocks": blocks}, (16, 256))
    for rounding, path in (("exact", "tile"), ("int8x256", "int8x256")):
        monkeypatch.setenv("QBENCH_K_QUANT_COMPUTE", rounding)
        assert packed.choice(512)[1] == path


@pytest.mark.parametrize("name, parts", [("bf16", {"blocks": np.zeros((16, 64), np.uint8)})])
def test_formats_that_are_multiplied_as_stored_refuse_it(monkeypatch, name, parts):
    packed = cpu_kernels.PackedLinear(name, parts, (16, 32))
    with pytest.raises(ValueError, match="path=bf16: only codes in blocks or groups, and trellis codes, have it"):
        packed.choice(1, path="bf16")
    before = packed.choice(512)
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "bf16")
    assert packed.choice(512) == before
