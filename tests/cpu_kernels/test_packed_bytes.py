"""Packed weights as bytes: a second weight multiplies over the bytes that the first one packed."""

import numpy as np
import pytest

import cpu_kernels
from qbench.runtime.layers.linear import PackedLinear
from quant.formats import get_format

ROWS, ROW_SIZE = 70, 512  # the last panel is not full
FORMATS = ("q4_k", "q6_k", "q8_0", "iq4_nl", "f16", "bf16", "f32", "w4g128", "w3g128-asym", "w8a8")


def aligned(size: int) -> np.ndarray:
    memory = np.zeros(size + 64, dtype=np.uint8)
    return memory[-memory.ctypes.data % 64 :][:size]


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_of_one_weight_are_another(name):
    rng = np.random.default_rng(0)
    weight, x = (rng.standard_normal((rows, ROW_SIZE)).astype(np.float32) for rows in (ROWS, 3))
    packed = PackedLinear(get_format(name).quantize_ref(weight)).packed
    memory = aligned(packed.nbytes)
    other = cpu_kernels.PackedLinear(name, {"packed": memory}, (ROWS, ROW_SIZE))
    assert not np.array_equal(other.matmul(x), packed.matmul(x))
    memory[:] = packed.bytes
    assert np.array_equal(other.matmul(x), packed.matmul(x))
    index = np.array([0, 69, 3])
    assert np.array_equal(other.rows(index), packed.rows(index))


def test_features_in_another_order():
    weight = get_format("w4g128").quantize_ref(np.random.default_rng(0).standard_normal((ROWS, ROW_SIZE)))
    order = np.random.default_rng(1).permutation(ROW_SIZE)
    shared = {"g_idx": np.repeat(np.arange(4, dtype=np.int32), 128)[order]}
    packed = cpu_kernels.PackedLinear("w4g128", {**weight.parts, **shared}, (ROWS, ROW_SIZE))
    memory = aligned(packed.nbytes)
    memory[:] = packed.bytes
    other = cpu_kernels.PackedLinear("w4g128", {"packed": memory, **shared}, (ROWS, ROW_SIZE))
    x = np.random.default_rng(2).standard_normal((2, ROW_SIZE)).astype(np.float32)
    assert np.array_equal(other.matmul(x), packed.matmul(x))


def test_bytes_cannot_be_written():
    packed = PackedLinear(get_format("q8_0").quantize_ref(np.ones((16, 32), np.float32))).packed
    assert not packed.bytes.flags.writeable


@pytest.mark.parametrize("change", [1, -1])
def test_memory_of_another_size_is_refused(change):
    with pytest.raises(ValueError, match=r"packed: got uint8 .*, expected uint8 \[544\], at a multiple of 64"):
        cpu_kernels.PackedLinear("q8_0", {"packed": aligned(544 + change)}, (16, 32))


def test_memory_that_no_kernel_loads_from_is_refused():
    with pytest.raises(ValueError, match="at a multiple of 64"):
        cpu_kernels.PackedLinear("q8_0", {"packed": aligned(544 + 32)[32:]}, (16, 32))
    with pytest.raises(TypeError, match="packed: got int8"):
        cpu_kernels.PackedLinear("q8_0", {"packed": aligned(544).view(np.int8)}, (16, 32))
