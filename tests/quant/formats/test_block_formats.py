"""All GGUF formats against third parties: gguf's dequantizers and libggml's quantizers."""

import re

import gguf
import numpy as np
import pytest
from support.block_weights import EXPONENTS, HALVES
from support.close import assert_close
from support.ggml import ggml_quantize, needs_ggml
from support.weights import KINDS, make_weight

from quant.errors import InputError
from quant.formats import FORMATS, BlockFormat, format_of_gguf_type, get_format
from quant.formats.grid import GridFormat
from quant.formats.lattice import LatticeFormat
from quant.qtensor import QTensor

BLOCK_NAMES = [name for name, fmt in FORMATS.items() if isinstance(fmt, BlockFormat) and fmt.writes]
QUANTIZED = [name for name in BLOCK_NAMES if get_format(name).block_size > 1]
SAME_BYTES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4"]
BY_WEIGHT = [name for name in QUANTIZED if not isinstance(get_format(name), LatticeFormat)]  # a code of its own
EVEN_STEPS = [name for name in QUANTIZED if isinstance(get_format(name), GridFormat)]

LARGEST_HALF_STEP = {"mxfp4": 1 / 5}  # from 4 to 6, as a share of the weight


def bits_of(name: str) -> int:
    return int(re.search(r"\d", name)[0])


def gguf_dequantize(data: np.ndarray, fmt: BlockFormat) -> np.ndarray:
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType(fmt.gguf_type))


def rmse(weight: np.ndarray, qtensor: QTensor) -> float:
    error = get_format(qtensor.format).dequantize_ref(qtensor).astype(np.float64) - weight
    return float(np.sqrt(np.mean(error**2)))


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_sizes_are_gguf_sizes(name):
    fmt = get_format(name)
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(fmt.gguf_type)] == (fmt.block_size, fmt.block_bytes)
    assert format_of_gguf_type(fmt.gguf_type) is fmt


@pytest.mark.parametrize("name", BLOCK_NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_dequantizes_own_bytes_as_gguf(name, kind):
    fmt = get_format(name)
    qtensor = fmt.quantize_ref(make_weight(kind))
    assert qtensor.size_bytes == fmt.size_bytes(qtensor.shape)
    np.testing.assert_array_equal(fmt.dequantize_ref(qtensor), gguf_dequantize(qtensor.parts["blocks"], fmt))


@pytest.mark.parametrize("name", QUANTIZED)
def test_dequantizes_random_bytes_as_gguf(name):
    fmt = get_format(name)
    rng = np.random.default_rng(7)
    blocks = rng.integers(0, 256, (1000, fmt.block_bytes), dtype=np.uint8)
    for offset in HALVES[name]:
        half = rng.standard_normal(len(blocks)).astype("<f2")
        blocks[:, offset : offset + 2] = half.view(np.uint8).reshape(-1, 2)
    if name in EXPONENTS:
        blocks[:, EXPONENTS[name]] %= 250  # beyond, values may be infinite
    got = fmt.dequantize_ref(QTensor(name, (1000, fmt.block_size), {"blocks": blocks}))
    np.testing.assert_array_equal(got, gguf_dequantize(blocks, fmt))


@needs_ggml
@pytest.mark.parametrize("name", SAME_BYTES)
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_match_ggml(name, kind):
    fmt, weight = get_format(name), make_weight(kind)
    np.testing.assert_array_equal(fmt.quantize_ref(weight).parts["blocks"], ggml_quantize(weight, fmt.gguf_type))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_mxfp4_match_gguf(kind):
    """The gguf package quantizes this one, so that the oracle is there without libggml."""
    weight = make_weight(kind)
    expected = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.MXFP4)
    np.testing.assert_array_equal(get_format("mxfp4").quantize_ref(weight).parts["blocks"], expected)


MAGNITUDES = pytest.mark.parametrize("absmax", [1e-30, 1e-7, 1e-3, 1.0, 1e3, 1e6, 1e20, 3e38], ids="{:.0e}".format)


@pytest.mark.parametrize("name", BY_WEIGHT)
@MAGNITUDES
def test_any_magnitude_stays_finite(name, absmax):
    fmt = get_format(name)
    weight = np.random.default_rng(3).uniform(-absmax, absmax, (4, 512)).astype(np.float32)
    got = fmt.dequantize_ref(fmt.quantize_ref(weight))
    assert np.isfinite(got).all()
    # Half a step beyond, or the smallest step of a float16 scale and minimum.
    half_a_step = LARGEST_HALF_STEP.get(name, max(0.1, 1 / (2 ** bits_of(name) - 1)))
    assert float(np.abs(got).max()) <= (1 + half_a_step) * absmax + 2 * 2.0**-24


@pytest.mark.parametrize("name", EVEN_STEPS)
@pytest.mark.parametrize("absmax", [1e-2, 1.0, 5e4], ids="{:.0e}".format)
def test_error_is_about_half_a_step(name, absmax):
    fmt = get_format(name)
    weight = np.random.default_rng(3).uniform(-absmax, absmax, (4, 512)).astype(np.float32)
    step = 2 * absmax / 2 ** bits_of(name)
    assert rmse(weight, fmt.quantize_ref(weight)) <= 1.1 * step / np.sqrt(12)


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("value", [0.0, -0.0, 0.75, -0.75])
def test_constant_blocks(name, value):
    fmt = get_format(name)
    weight = np.full((3, 512), value, dtype=np.float32)
    # The stored float16 scale (and for K-quants d times an integer) is the only thing that rounds.
    assert_close(fmt.dequantize_ref(fmt.quantize_ref(weight)), weight, rtol=2 * 2.0**-11)


@pytest.mark.parametrize("name", QUANTIZED)
def test_chunks_do_not_show(name):
    fmt = get_format(name)
    weight = 0.02 * np.random.default_rng(5).standard_normal((131, 1024)).astype(np.float32)
    whole = fmt.quantize_ref(weight)
    rows = [fmt.quantize_ref(weight[i : i + 1]).parts["blocks"] for i in range(len(weight))]
    np.testing.assert_array_equal(whole.parts["blocks"], np.concatenate(rows))


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights_are_refused(name, bad):
    weight = np.zeros((2, 256), dtype=np.float32)
    weight[1, 17] = bad
    with pytest.raises(InputError, match=f"{name} holds finite weights"):
        get_format(name).quantize_ref(weight)


@pytest.mark.parametrize("name", QUANTIZED)
def test_rejects_a_row_it_cannot_hold(name):
    with pytest.raises(InputError, match=rf"{name} needs rows of a multiple of \d+ weights, got 172"):
        get_format(name).quantize_ref(np.zeros((2, 172), dtype=np.float32))


def test_rejects_a_wrong_number_of_bytes():
    with pytest.raises(InputError, match="takes 68 bytes, got 66"):
        get_format("q8_0").dequantize_ref(QTensor("q8_0", (2, 32), {"blocks": np.zeros((2, 33), np.uint8)}))


def test_accepts_other_float_dtypes_and_views():
    weight = make_weight("gauss")
    wide = get_format("q4_k").quantize_ref(weight.astype(np.float64)[::2])
    np.testing.assert_array_equal(
        wide.parts["blocks"], get_format("q4_k").quantize_ref(weight[::2].copy()).parts["blocks"]
    )


@pytest.mark.parametrize("call", [lambda: get_format("q9_9"), lambda: format_of_gguf_type(999)], ids=["name", "type"])
def test_unknown_format_lists_the_known(call):
    with pytest.raises(InputError, match="q4_k"):
        call()
