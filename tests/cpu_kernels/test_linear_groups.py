"""Integers in groups, in every instruction set and on both paths, against float64 on quant's decoded weights."""

import numpy as np
import pytest
from support.close import assert_close

import cpu_kernels
from cpu_kernels.linear import linear_ref, rounding_bound
from quant.formats import dequantize, get_format
from quant.qtensor import QTensor

PATHS = ("direct", "tile")

# Formats, and K of one group and more: steps of 32 per group that do and do not divide a stretch of 16, or exceed it;
# per channel, rows that fill no step.
CASES = [
    ("w2g64", 192),
    ("w2g32-asym", 96),
    ("w3g128", 384),
    ("w3g96-asym", 1152),
    ("w4g32", 1120),
    ("w4g128", 1280),
    ("w4g1024", 2048),
    ("w4g128-asym", 256),
    ("w8g160", 640),
    ("w8g64-asym", 1088),
    ("w4", 1),
    ("w4", 33),
    ("w8", 1100),
    ("w3-asym", 600),
    ("w8-asym", 70),
]


def random_groups(name: str, num_rows: int, row_size: int, g_idx: np.ndarray | None = None) -> QTensor:
    """Every code and zero point that there is, under scales of both signs."""
    fmt = get_format(name)
    rng = np.random.default_rng((num_rows, row_size))
    q = rng.integers(fmt.qmin, fmt.qmax + 1, (num_rows, row_size)).astype(np.int8)
    groups = (num_rows, fmt.num_groups(row_size))
    scale = (rng.uniform(-1, 1, groups) / 64).astype(np.float16)
    zero_point = None if fmt.symmetric else rng.integers(fmt.qmin, fmt.qmax + 1, groups).astype(np.int8)
    return fmt.pack(q, scale, zero_point, g_idx)


def pack(qtensor: QTensor) -> cpu_kernels.PackedLinear:
    return cpu_kernels.PackedLinear(qtensor.format, {**qtensor.parts, **qtensor.shared}, qtensor.shape)


def minima(qtensor: QTensor) -> np.ndarray | None:
    """The values of the zero points, [N, K], if they meet sums of activations: codes of 8 bits."""
    if qtensor.format[1] != "8" or "weight_zero_point" not in qtensor.parts:
        return None
    scale, zero_point = (qtensor.parts[name].astype(np.float64) for name in ("weight_scale", "weight_zero_point"))
    row_size = qtensor.shape[1]
    group_of = qtensor.shared.get("g_idx", np.arange(row_size) * scale.shape[1] // row_size)
    return (-scale * zero_point)[:, group_of]


def random_x(num_tokens: int, row_size: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((num_tokens, row_size)).astype(np.float32)


@pytest.mark.parametrize("num_rows", [1, 16, 35], ids="N={}".format)
@pytest.mark.parametrize("name, row_size", CASES)
def test_matches_oracle(isa, matmul, name, row_size, num_rows):
    qtensor = random_groups(name, num_rows, row_size)
    packed, values, x = pack(qtensor), dequantize(qtensor), random_x(27, row_size)
    expected, bound = linear_ref(x, values), rounding_bound(x, values, minima(qtensor))
    for num_tokens in (1, 2, 3, 4, 5, 6, 7, 8, 13, 27):
        for path in PATHS:
            out = np.full((num_tokens, num_rows), np.nan, np.float32)
            matmul(packed, x[:num_tokens], isa, path=path, out=out)
            assert_close(out, expected[:num_tokens], atol=bound[:num_tokens])


@pytest.mark.parametrize("num_rows", [64, 100, 131], ids="N={}".format)
@pytest.mark.parametrize("name, row_size", [("w4g128", 1152), ("w3g96", 1248), ("w8", 1120), ("w8-asym", 1120)])
def test_every_place_of_a_panel_among_its_neighbours(isa, matmul, name, row_size, num_rows):
    """Four panels are side by side, or the rest of four, each in several stretches, of which the last is short."""
    qtensor = random_groups(name, num_rows, row_size)
    packed, values, x = pack(qtensor), dequantize(qtensor), random_x(9, row_size)
    expected, bound = linear_ref(x, values), rounding_bound(x, values, minima(qtensor))
    for path in PATHS:
        assert_close(matmul(packed, x, isa, path=path), expected, atol=bound)
    assert_close(packed.rows(np.arange(num_rows)), values)


@pytest.mark.parametrize("name", ["w4g32", "w3g64-asym", "w8g32-asym"])
def test_features_may_be_in_any_order(isa, matmul, name):
    """GPTQ's act-order: the group of each feature is given, and groups of 32 are rounded together."""
    group_size = get_format(name).group_size
    g_idx = np.random.default_rng(2).permutation(np.repeat(np.arange(256 // group_size), group_size)).astype(np.int32)
    qtensor = random_groups(name, 19, 256, g_idx)
    packed, values, x = pack(qtensor), dequantize(qtensor), random_x(14, 256)
    order = np.argsort(g_idx, kind="stable")
    minimum = minima(qtensor)
    bound = rounding_bound(x[:, order], values[:, order], None if minimum is None else minimum[:, order])
    for path in PATHS:
        assert_close(matmul(packed, x, isa, path=path), linear_ref(x, values, order), atol=bound)
    assert_close(packed.rows(np.arange(19)), values)


@pytest.mark.parametrize("name, row_size", CASES)
def test_rows_match_quant(name, row_size):
    qtensor = random_groups(name, 35, row_size)
    index = np.random.default_rng(3).integers(0, 35, 40)
    assert_close(pack(qtensor).rows(index), dequantize(qtensor)[index])


@pytest.mark.parametrize("name", ["w8", "w8-asym", "w4-asym", "w4", "w3", "w2"])
def test_extreme_codes_do_not_saturate(isa, matmul, name):
    fmt = get_format(name)
    q = np.tile(np.array([[fmt.qmin], [fmt.qmax]], np.int8), (8, 64))
    scale = np.ones((16, 1), np.float16)
    zero_point = None if fmt.symmetric else np.repeat(np.array([[fmt.qmax], [fmt.qmin]], np.int8), 8, axis=0)
    qtensor = fmt.pack(q, scale, zero_point)
    x = np.full((5, 64), 127, np.float32)
    x[1], x[2, ::2] = -127, -127
    for path in PATHS:
        assert_close(matmul(pack(qtensor), x, isa, path=path), linear_ref(x, dequantize(qtensor)))


def test_the_last_block_of_a_row_is_rounded_as_if_filled_with_zeros(isa, matmul):
    qtensor = get_format("w4").pack(np.eye(35, 35, dtype=np.int8), np.ones((35, 1), np.float16), None)
    x = random_x(3, 35)
    assert_close(matmul(pack(qtensor), x, isa), linear_ref(x, np.eye(35)).astype(np.float32))


def test_packed_bytes_are_the_formats_bytes():
    qtensor = random_groups("w4g128-asym", 48, 512)
    assert pack(qtensor).nbytes == qtensor.size_bytes
    assert cpu_kernels.packed_linear_bytes("w3g64", (33, 128)) == pack(random_groups("w3g64", 33, 128)).nbytes


@pytest.mark.parametrize(
    "name, packs",
    [
        ("w4g128", True),
        ("w3", True),
        ("w8-asym", True),
        ("w4g40", False),
        ("w5g32", False),
        ("w4g", False),
        ("w4g-1", False),
    ],
)
def test_which_formats_have_kernels(name, packs):
    assert cpu_kernels.has_packed_linear(name) == packs


GOOD = random_groups("w4g32-asym", 4, 64)


@pytest.mark.parametrize(
    "changed, error, message",
    [
        ({"weight_packed": np.zeros((4, 7), np.int32)}, ValueError, r"weight_packed: got int32 \[4, 7\], expected"),
        ({"weight_packed": np.zeros((4, 8), np.uint32)}, TypeError, r"got uint32 \[4, 8\], expected int32"),
        ({"weight_scale": np.zeros((4, 2), np.float32)}, TypeError, r"weight_scale: got float32 \[4, 2\], expected"),
        ({"weight_scale": np.zeros((4, 3), np.float16)}, ValueError, r"expected float16 \[4, 2\]"),
        ({"weight_zero_point": np.zeros((2, 4), np.int8).T}, ValueError, "weight_zero_point: .* strides"),
        ({"weight_zero_point": np.full((4, 2), 121, np.int8)}, ValueError, "got 121, expected -120 to 120"),
        ({"g_idx": np.zeros(63, np.int32)}, ValueError, r"g_idx: got int32 \[63\], expected int32 \[64\]"),
        ({"g_idx": np.full(64, 2, np.int32)}, ValueError, "g_idx: got group 2, expected 0 to 1"),
        ({"g_idx": np.zeros(64, np.int32)}, NotImplementedError, "got 64 features in group 0, .* one size, 32"),
    ],
)
def test_bad_parts(changed, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedLinear(GOOD.format, {**GOOD.parts, **changed}, GOOD.shape)


def test_missing_part():
    parts = {name: part for name, part in GOOD.parts.items() if name != "weight_zero_point"}
    with pytest.raises(ValueError, match="got parts weight_packed, weight_scale, expected weight_zero_point"):
        cpu_kernels.PackedLinear(GOOD.format, parts, GOOD.shape)
