"""4-bit floats of compressed-tensors: the bytes are those of its own compressor, and its decompressor reads them."""

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.weights import KINDS, make_weight

from quant.artifacts.layouts.fp4s import MXFP4S, NVFP4S
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.formats.fp4_linear import to_blocks
from quant.formats.small_floats import E2M1_VALUES, pack_pairs, to_e2m1, unpack_pairs
from quant.qtensor import QTensor

PACKERS = {"nvfp4a16": NVFP4S, "mxfp4a16": MXFP4S}


def test_codes_are_the_nearest_and_ties_go_to_even_codes():
    x = np.arange(-700, 701, dtype=np.float32) / 100
    distance = np.abs(E2M1_VALUES[to_e2m1(x)] - x)
    np.testing.assert_array_equal(distance, np.abs(E2M1_VALUES[:, None] - x).min(axis=0))
    ties = np.float32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    np.testing.assert_array_equal(to_e2m1(ties), [0, 2, 2, 4, 4, 6, 6])
    np.testing.assert_array_equal(to_e2m1(np.float32([-0.25, -0.0, -6, 9])), [0, 0, 15, 7])
    codes = np.random.default_rng(0).integers(0, 16, (3, 32), dtype=np.uint8)
    np.testing.assert_array_equal(unpack_pairs(pack_pairs(codes)), codes)


def their(name):
    """(compressor, scheme, preset)"""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import preset_name_to_scheme

    return BaseCompressor.get_value_from_registry(PACKERS[name].name), preset_name_to_scheme(name.upper(), ["Linear"])


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_nvfp4_match_compressed_tensors(kind):
    compressor, scheme = their("nvfp4a16")
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    weight = make_weight(kind)
    values = torch.from_numpy(weight)
    groups = values.unflatten(1, (-1, 16))
    global_scale = generate_gparam(values.min(), values.max())
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights, global_scale=global_scale)
    stored = compressor.compress({"weight": values, "weight_scale": scale, "weight_global_scale": global_scale}, scheme)
    ours = NVFP4S.pack(get_format("nvfp4a16").quantize(weight))
    assert torch.equal(torch.from_numpy(ours["weight_global_scale"]), global_scale)
    np.testing.assert_array_equal(ours["weight_scale"], stored["weight_scale"].view(torch.uint8).numpy())
    theirs = unpack_pairs(stored["weight_packed"].numpy())
    theirs = np.where(theirs == 8, 0, theirs)  # -0, which is not written here
    np.testing.assert_array_equal(unpack_pairs(ours["weight_packed"]), theirs)


@pytest.mark.parametrize("name", PACKERS)
def test_their_decompressor_gives_our_weights_in_bfloat16(name):
    compressor, scheme = their(name)
    qtensor = get_format(name).quantize(make_weight("student_t4"))
    state = {part: torch.from_numpy(np.ascontiguousarray(array)) for part, array in PACKERS[name].pack(qtensor).items()}
    if name == "nvfp4a16":
        state["weight_scale"] = state["weight_scale"].view(torch.float8_e4m3fn)
    got = compressor.decompress(state, scheme)["weight"].float()
    # They round the scale to bfloat16 once or twice, and then the weight.
    assert_close(got, dequantize(qtensor), rtol=3 * 2.0**-9)


def test_mxfp4_is_the_format_of_gguf_in_other_places():
    fmt, weight = get_format("mxfp4a16"), make_weight("gauss")
    qtensor, blocks = fmt.quantize(weight), get_format("mxfp4").quantize(weight)
    np.testing.assert_array_equal(to_blocks(qtensor).parts["blocks"], blocks.parts["blocks"])
    np.testing.assert_array_equal(dequantize(qtensor), dequantize(blocks))
    assert fmt.bits_per_weight == 4.25 and qtensor.size_bytes == fmt.size_bytes(weight.shape)


@pytest.mark.parametrize("name", PACKERS)
def test_bad_weights_are_refused(name):
    fmt = get_format(name)
    with pytest.raises(InputError, match=f"{name} needs rows of a multiple of {fmt.block_size} weights, got 40"):
        fmt.quantize(np.zeros((2, 40), np.float32))
    with pytest.raises(InputError, match=f"{name} holds finite weights"):
        fmt.quantize(np.full((2, 64), np.inf, np.float32))
    with pytest.raises(InputError, match="holds matrices"):
        fmt.quantize(np.zeros(64, np.float32))


def test_extremes_of_nvfp4():
    fmt = get_format("nvfp4a16")
    zeros = fmt.quantize(np.zeros((2, 32), np.float32))
    assert isinstance(zeros, QTensor) and (dequantize(zeros) == 0).all()
    for largest in (1e-30, 1e30):
        weight = np.float32(largest) * np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
        # A step at the top is 2 of 6, and a scale is rounded to 3 bits.
        assert_close(dequantize(fmt.quantize(weight)), weight, atol=(1 / 6 + 2.0**-4) * largest)
