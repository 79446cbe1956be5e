"""Speed of the encoders and libggml's, one thread each: `pytest --benchmark-only tests/cpu_kernels`.

The matrices of the published peer figures, Gaussian of deviation 0.02 and importance lognormal(0, 1), with fewer rows.
Before a format is timed its error is compared: no speed is shown of an encoder that is worse. extra_info holds
    relative_error   sqrt(sum i (w - q)^2 / sum i w^2), i the importance (1 if there is no importance)
    weights_s        weights per second, of the fastest round
"""

import numpy as np
import pytest
from support.ggml import ggml_quantize, needs_ggml

import cpu_kernels
from cpu_kernels.encode import ENCODED_FORMATS
from quant.formats import get_format
from quant.qtensor import QTensor

NUM_ROWS, ROW_SIZE = 256, 4096
ENCODERS = {
    "fast": lambda fmt, weight, importance: fmt.quantize(weight, importance=importance).parts["blocks"],
    "best": lambda fmt, weight, importance: fmt.quantize(weight, importance=importance, effort="best").parts["blocks"],
    "ggml": lambda fmt, weight, importance: ggml_quantize(weight, fmt.gguf_type, importance),
}


@pytest.fixture(scope="module")
def weight() -> np.ndarray:
    return (0.02 * np.random.default_rng(1234).standard_normal((NUM_ROWS, ROW_SIZE))).astype(np.float32)


@pytest.fixture(scope="module")
def importance() -> np.ndarray:
    return np.random.default_rng(1235).lognormal(0, 1, ROW_SIZE).astype(np.float32)


def relative_error(name: str, weight: np.ndarray, importance: np.ndarray | None, blocks: np.ndarray) -> float:
    decoded = get_format(name).dequantize_ref(QTensor(name, weight.shape, {"blocks": blocks}))
    factor = 1.0 if importance is None else importance.astype(np.float64)
    error = factor * (decoded.astype(np.float64) - weight) ** 2
    return float(np.sqrt(error.sum() / (factor * weight.astype(np.float64) ** 2).sum()))


@needs_ggml
@pytest.mark.parametrize("impl", ENCODERS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
@pytest.mark.parametrize("name", ENCODED_FORMATS)
def test_encoders_are_timed(benchmark, one_thread, weight, importance, name, weighted, impl):
    fmt, row = get_format(name), importance if weighted else None
    blocks = ENCODERS[impl](fmt, weight, row)
    error = relative_error(name, weight, row, blocks)
    assert error <= relative_error(name, weight, row, ENCODERS["ggml"](fmt, weight, row))
    benchmark.group = f"{name} {'importance' if weighted else 'plain'}"
    benchmark.pedantic(ENCODERS[impl], (fmt, weight, row), rounds=3)
    benchmark.extra_info.update(
        relative_error=error,
        weights_s=weight.size / benchmark.stats.stats.min,
        isa=cpu_kernels.chosen_isa(f"encode_{name}"),
    )
