"""Formats with minima: their errors beside libggml's, their grids, their two efforts."""

import numpy as np
import pytest
from support.ggml import ggml_quantize, needs_ggml
from support.weights import make_weight, reference_weight

from quant.formats import get_format
from quant.formats.importance import importance_blocks
from quant.qtensor import QTensor

NAMES = ["q4_1", "q5_1", "q2_k", "q4_k", "q5_k"]
ROUNDED = ["q4_1", "q5_1"]  # by ggml's own rule where there is neither importance nor a search
WEIGHTS = {
    "gauss": lambda: make_weight("gauss"),
    "student_t4": lambda: make_weight("student_t4"),
    "reference": reference_weight,
}


def importance_of(weight: np.ndarray) -> np.ndarray:
    return np.random.default_rng(5).lognormal(0, 1, weight.shape[1]).astype(np.float32)


def error(weight: np.ndarray, qtensor: QTensor, importance: np.ndarray | None = None) -> float:
    square = (get_format(qtensor.format).dequantize_ref(qtensor).astype(np.float64) - weight) ** 2
    return float(np.sqrt(np.mean(square if importance is None else square * importance)))


@needs_ggml
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
def test_error_is_at_most_that_of_ggml_and_two_percent_less_with_effort(name, kind, weighted):
    fmt, weight = get_format(name), WEIGHTS[kind]()
    importance = importance_of(weight) if weighted else None
    data = ggml_quantize(weight, fmt.gguf_type, importance)
    theirs = error(weight, QTensor(name, weight.shape, {"blocks": data}), importance)
    fast, best = (
        error(weight, fmt.quantize(weight, importance=importance, effort=effort), importance)
        for effort in ("fast", "best")
    )
    assert fast <= theirs
    assert best <= 0.98 * theirs
    assert best < fast


@pytest.mark.parametrize("name", NAMES)
def test_importance_moves_the_error_to_where_it_counts_less(name):
    fmt, weight = get_format(name), make_weight("gauss")
    importance = importance_of(weight)
    plain = fmt.quantize(weight, effort="best")
    weighted = fmt.quantize(weight, importance=importance, effort="best")
    assert error(weight, weighted, importance) < error(weight, plain, importance)
    assert error(weight, weighted) > error(weight, plain)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("effort", ["fast", "best"])
def test_equal_importance_is_none(name, effort):
    if name in ROUNDED and effort == "fast":
        pytest.skip("without importance the fast way is ggml's rounding, not the search")
    fmt, weight = get_format(name), make_weight("gauss")[:2]
    same = fmt.quantize(weight, importance=np.full(weight.shape[1], 7.0, dtype=np.float32), effort=effort)
    np.testing.assert_array_equal(same.parts["blocks"], fmt.quantize(weight, effort=effort).parts["blocks"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
def test_the_fitted_grid_with_its_codes_is_the_block(name, weighted):
    fmt = get_format(name)
    weight = make_weight("student_t4")[:2]
    blocks = weight.reshape(-1, fmt.block_size)
    rows = importance_blocks(importance_of(weight), weight.shape[1], fmt.block_size) if weighted else None
    importance = None if rows is None else rows[np.arange(len(blocks)) % len(rows)]
    data = fmt.quantize_blocks(blocks, importance)
    grid, q = fmt.fit_grid(blocks, importance), fmt.read_codes(data)
    assert (grid.qmin, grid.qmax) == (q.min(), q.max())
    np.testing.assert_array_equal(fmt.pack_grid(grid, q.astype(np.int64)), data)
    np.testing.assert_array_equal(grid.scale * q + grid.offset, fmt.dequantize_blocks(data))


@pytest.mark.parametrize("name", NAMES)
def test_a_grid_takes_any_codes(name):
    fmt = get_format(name)
    blocks = make_weight("gauss")[:1].reshape(-1, fmt.block_size)
    grid = fmt.fit_grid(blocks)
    q = np.random.default_rng(3).integers(grid.qmin, grid.qmax + 1, blocks.shape)
    np.testing.assert_array_equal(
        fmt.dequantize_blocks(fmt.pack_grid(grid, q)), grid.scale * q.astype(np.int8) + grid.offset
    )


@pytest.mark.parametrize("name", NAMES)
def test_codes_are_the_nearest_of_the_grid(name):
    fmt = get_format(name)
    blocks = make_weight("outliers")[:2].reshape(-1, fmt.block_size)
    data = fmt.quantize_blocks(blocks, None, "best")
    grid = fmt.read_grid(data)
    levels = [grid.scale * np.float32(q) + grid.offset for q in range(grid.qmin, grid.qmax + 1)]
    nearest = np.min([np.abs(level.astype(np.float64) - blocks) for level in levels], axis=0)
    got = np.abs(fmt.dequantize_blocks(data).astype(np.float64) - blocks)
    # Half way between two levels rounding may choose either: they differ by what float32 makes of x / scale.
    assert (got - nearest <= 2.0**-19 * (np.abs(grid.offset) + np.abs(blocks))).all()
