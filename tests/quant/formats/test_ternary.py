"""Ternary formats: gguf's bytes of ternary weights, and the least error that there is of others."""

import gguf
import numpy as np
import pytest
from support.ggml import ggml_quantize, needs_ggml
from support.weights import make_weight

from quant.formats import get_format
from quant.formats.ternary import ternary_scale
from quant.qtensor import QTensor

NAMES = ("tq1_0", "tq2_0")
IMPORTANCE = np.random.default_rng(1).uniform(0.1, 4, make_weight("gauss").shape[1]).astype(np.float32)


def ternary_weights() -> np.ndarray:
    """[6, 512] float32, with all three values in each block and a scale per block that float16 holds"""
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.01, 2, (6, 2, 1)).astype(np.float16).astype(np.float32)
    return (scale * rng.integers(-1, 2, (6, 2, 256))).astype(np.float32).reshape(6, 512)


@pytest.mark.parametrize("name", NAMES)
def test_ternary_weights_come_back(name):
    fmt, weight = get_format(name), ternary_weights()
    stored = fmt.quantize_ref(weight)
    np.testing.assert_array_equal(fmt.dequantize_ref(stored), weight)
    np.testing.assert_array_equal(
        stored.parts["blocks"], gguf.quants.quantize(weight, gguf.GGMLQuantizationType[name.upper()])
    )


def test_golden_bytes():
    """d is 1; weight 0 is 1, weight 1 is -1 and all others are 0."""
    weight = np.zeros((1, 256), np.float32)
    weight[0, :2] = 1, -1
    two, one = (get_format(name).quantize_ref(weight).parts["blocks"][0] for name in ("tq2_0", "tq1_0"))
    assert two.tolist() == [0b01010110, 0b01010100, *[0b01010101] * 62, 0x00, 0x3C]
    # 11111 in base 3 is 121, 21111 is 202 and 01111 is 40; 1111 and a last 0 are 120: in units of 256 / 243, rounded up
    assert one.tolist() == [213, 43, *[128] * 46, *[127] * 4, 0x00, 0x3C]


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
def test_no_other_scale_has_less_error(weighted):
    """Against every threshold between two magnitudes of a block, each with its best scale."""
    block = np.random.default_rng(2).standard_t(3, 256)
    importance = IMPORTANCE[:256].astype(np.float64) if weighted else np.ones(256)
    errors = []
    for threshold in np.abs(block):
        level = np.sign(block) * (np.abs(block) >= threshold)
        scale = (importance * block * level).sum() / (importance * level**2).sum()
        errors.append((importance * (block - scale * level) ** 2).sum())
    d = ternary_scale(block[None].astype(np.float32), importance[None].astype(np.float32)).astype(np.float64)[0]
    got = (importance * (block - d * np.sign(block) * (np.abs(block) > d / 2)) ** 2).sum()
    assert got <= min(errors) * (1 + 1e-4), "d is rounded to float16"


@needs_ggml
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("importance", [None, IMPORTANCE], ids=["plain", "importance"])
def test_error_is_at_most_that_of_libggml(name, importance):
    fmt, weight = get_format(name), make_weight("gauss")
    theirs = ggml_quantize(weight, fmt.gguf_type, importance)

    def rmse(qtensor: QTensor) -> float:
        error = np.square(fmt.dequantize_ref(qtensor) - weight) * (1 if importance is None else importance)
        return float(np.sqrt(error.mean()))

    ours = rmse(fmt.quantize_ref(weight, importance=importance))
    assert ours < 0.8 * rmse(QTensor(name, weight.shape, {"blocks": theirs}))
