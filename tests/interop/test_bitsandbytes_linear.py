"""LLM.int8() against bitsandbytes' own Linear8bitLt on the CPU: the same codes, and outputs within float16 rounding."""

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.random_linear import random_x

from qbench.runtime.layers.linear import choose_linear
from quant.formats import get_format
from quant.formats.llm_int8 import OUTLIER_THRESHOLD
from quant.qtensor import QTensor

bitsandbytes = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")

ROW_SIZE = 320


def make_weight() -> np.ndarray:
    weight = 0.02 * np.random.default_rng(9).standard_t(4, (48, ROW_SIZE))
    weight[5] = 0
    return weight.astype(np.float32)


def make_x(num_tokens: int, num_outliers: int) -> torch.Tensor:
    x = random_x(num_tokens, ROW_SIZE)
    x[num_tokens // 2, :num_outliers] *= 20
    return x


def their_linear(weight: np.ndarray) -> torch.nn.Module:
    linear = bitsandbytes.nn.Linear8bitLt(
        ROW_SIZE, len(weight), bias=False, has_fp16_weights=False, threshold=OUTLIER_THRESHOLD
    )
    linear.weight = bitsandbytes.nn.Int8Params(torch.from_numpy(weight), requires_grad=False, has_fp16_weights=False)
    return linear.to("cpu").eval()


@torch.inference_mode()
def run_theirs(linear: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return linear(x).float()


def quantized_by_them() -> tuple[torch.nn.Module, QTensor]:
    """bitsandbytes' linear after its first call, and its quantized weight."""
    weight = make_weight()
    linear = their_linear(weight)
    run_theirs(linear, random_x(2, ROW_SIZE))
    stored = linear.state_dict() if linear.state.CB is None else {"weight": linear.state.CB, "SCB": linear.state.SCB}
    parts = {"weight": stored["weight"].numpy(), "SCB": stored["SCB"].float().numpy()}
    return linear, QTensor("llm-int8", weight.shape, parts)


def test_weights_get_the_same_codes():
    _, theirs = quantized_by_them()
    ours = get_format("llm-int8").quantize(make_weight())
    for part, array in ours.parts.items():
        np.testing.assert_array_equal(array, theirs.parts[part])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("num_outliers", [0, 3, ROW_SIZE], ids=["no outliers", "three features", "all features"])
@pytest.mark.parametrize("num_tokens", [1, 9])
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_outputs_are_equal_within_float16_rounding(impl, num_tokens, num_outliers, dtype):
    linear, qtensor = quantized_by_them()
    x = make_x(num_tokens, num_outliers).to(dtype)
    theirs = run_theirs(linear, x)
    ours = choose_linear("llm-int8", impl).build(qtensor)(x.float())
    magnitudes = x.double().abs() @ torch.from_numpy(get_format("llm-int8").dequantize_ref(qtensor)).double().abs().T
    if dtype is torch.float32:  # no float16 but that of the codes, which are the same: float32 sums and constants
        assert_close(ours, theirs, rtol=5e-7, atol=(ROW_SIZE * 2**-24 * magnitudes).numpy())
    else:  # the outlier features' weights, the int8 part and the sum are each rounded to float16
        assert_close(ours, theirs, rtol=2**-10, atol=(2**-10 * magnitudes + 2**-24).numpy())
    assert theirs.abs().max() > 0.1
