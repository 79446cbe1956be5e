"""Integer groups against compressed-tensors: same packing, same weights, same codes."""

import numpy as np
import pytest
import torch

from quant.errors import InputError
from quant.formats import IntGroupFormat, get_format
from quant.formats.bits import pack_int32, packed_words, unpack_int32

pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
from compressed_tensors.compressors.pack_quantized import (
    PackedQuantizationCompressor,
    pack_to_int32,
    unpack_from_int32,
)
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

NAMES = ["w8", "w4g128", "w3g128"]


def scheme_of(fmt: IntGroupFormat) -> QuantizationScheme:
    strategy = "group" if fmt.group_size else "channel"
    args = QuantizationArgs(num_bits=fmt.bits, group_size=fmt.group_size, strategy=strategy, symmetric=True)
    return QuantizationScheme(targets=["Linear"], weights=args)


def make_weight(num_rows: int, row_size: int) -> np.ndarray:
    return (0.02 * np.random.default_rng(9).standard_t(4, (num_rows, row_size))).astype(np.float32)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("row_size", [1, 3, 63, 131, 256])
def test_packs_as_compressed_tensors(bits, row_size):
    q = np.random.default_rng(bits).integers(-(1 << bits - 1), 1 << bits - 1, (5, row_size), dtype=np.int8)
    packed = pack_int32(q, bits)
    assert packed.shape == (5, packed_words(row_size, bits))
    np.testing.assert_array_equal(packed, pack_to_int32(torch.from_numpy(q), bits).numpy())
    np.testing.assert_array_equal(unpack_int32(packed, bits, row_size), q)
    theirs = unpack_from_int32(torch.from_numpy(packed), bits, torch.Size((5, row_size)))
    np.testing.assert_array_equal(theirs.numpy(), q)


def test_packed_word_by_hand():
    q = np.arange(-8, 0, dtype=np.int8)[None]  # stored as 0..7, the first in the lowest bits
    assert pack_int32(q, 4).tolist() == [[0x76543210]]


@pytest.mark.parametrize("name", NAMES)
def test_compressed_tensors_reads_the_same_weights(name):
    fmt = get_format(name)
    qtensor = fmt.quantize_ref(make_weight(67, 384))
    state = {part: torch.from_numpy(array) for part, array in qtensor.parts.items()}
    state["weight_scale"] = state["weight_scale"].float()  # as in a model loaded in float32
    state["weight_shape"] = torch.tensor(qtensor.shape)
    theirs = PackedQuantizationCompressor.decompress(state, scheme_of(fmt))["weight"]
    np.testing.assert_array_equal(fmt.dequantize_ref(qtensor), theirs.numpy())


@pytest.mark.parametrize("name", NAMES)
def test_compressed_tensors_chooses_the_same_codes(name):
    fmt, weight = get_format(name), make_weight(67, 384)
    parts = fmt.quantize_ref(weight).parts
    state = {"weight": torch.from_numpy(weight), "weight_scale": torch.from_numpy(parts["weight_scale"]).float()}
    theirs = PackedQuantizationCompressor.compress(state, scheme_of(fmt))
    np.testing.assert_array_equal(parts["weight_packed"], theirs["weight_packed"].numpy())


@pytest.mark.parametrize("name", NAMES)
def test_error_is_within_half_a_step(name):
    fmt, weight = get_format(name), make_weight(67, 384)
    qtensor = fmt.quantize_ref(weight)
    scale = qtensor.parts["weight_scale"].astype(np.float32)
    step = np.repeat(scale, 384 // scale.shape[1], axis=1)
    # half of one step, and at the positive end the half step that the asymmetric code range lacks
    assert (np.abs(fmt.dequantize_ref(qtensor) - weight) <= 0.51 * step + 2.0**-11 * np.abs(weight)).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("absmax", [0.0, 1e-30, 1e-6, 1e5, 3e38], ids="{:.0e}".format)
def test_any_magnitude_stays_finite(name, absmax):
    fmt = get_format(name)
    weight = np.random.default_rng(3).uniform(-absmax, absmax, (4, 256)).astype(np.float32)
    qtensor = fmt.quantize_ref(weight)
    got = fmt.dequantize_ref(qtensor)
    assert np.isfinite(got).all() and float(np.abs(got).max()) <= 1.2 * absmax
    assert (qtensor.parts["weight_scale"] > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_sizes_match_the_stored_parts(name):
    fmt = get_format(name)
    qtensor = fmt.quantize_ref(make_weight(5, 384))
    assert qtensor.size_bytes == fmt.size_bytes((5, 384))
    if fmt.group_size:
        assert fmt.bits_per_weight == 8 * qtensor.size_bytes / qtensor.num_weights


@pytest.mark.parametrize(
    "shape, message",
    [
        pytest.param((4, 172), "w4g128 needs rows of a multiple of 128 weights, got 172", id="row"),
        pytest.param((128,), r"w4g128 holds matrices \[N, K\]", id="vector"),
    ],
)
def test_bad_shapes_are_refused(shape, message):
    with pytest.raises(InputError, match=message):
        get_format("w4g128").quantize_ref(np.zeros(shape, dtype=np.float32))


def test_rejects_nan():
    with pytest.raises(InputError, match="w8 holds finite weights"):
        get_format("w8").quantize_ref(np.full((1, 4), np.nan, dtype=np.float32))
