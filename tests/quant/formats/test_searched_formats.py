"""Formats whose scales are searched for: their errors compared with libggml's, their grids, their two efforts."""

import numpy as np
import pytest
from support.ggml import ggml_quantize, needs_ggml
from support.weights import KINDS, make_weight, reference_weight

from quant.errors import InputError
from quant.formats import get_format
from quant.formats.grid import GridFormat
from quant.formats.importance import importance_blocks
from quant.qtensor import QTensor

LATTICES = ["iq3_xxs", "iq3_s", "iq2_xxs", "iq2_xs", "iq2_s"]
NAMES = [
    *("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"),
    *LATTICES,
]
ROUNDED = [
    "q8_0",
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "mxfp4",
]  # by ggml's own rule if there is neither importance nor a search
GRIDS = [name for name in NAMES if isinstance(get_format(name), GridFormat)]
# Largest error after the longer search, as a share of libggml's error; 0.99 if it is not given here.
BEST = {"q4_1": 0.98, "q5_1": 0.98, "q2_k": 0.96, "q4_k": 0.98, "q5_k": 0.96}
USUAL = ["gauss", "student_t4", "reference"]


# One to nine seconds per two-bit type: libggml looks for the neighbours of all its points before its first block.
SLOW = pytest.mark.exhaustive("the other lattices, which share all code but packing with the first")
TRIED = [pytest.param(name, marks=SLOW if name in LATTICES[1:] else ()) for name in NAMES]
IMPORTANCE_NEEDED = ("iq2_xxs", "iq2_xs")  # libggml aborts without one


def weight_of(kind: str) -> np.ndarray:
    return reference_weight() if kind == "reference" else make_weight(kind)


def importance_of(weight: np.ndarray) -> np.ndarray:
    return np.random.default_rng(5).lognormal(0, 1, weight.shape[1]).astype(np.float32)


def error(weight: np.ndarray, qtensor: QTensor, importance: np.ndarray | None = None) -> float:
    square = (get_format(qtensor.format).dequantize_ref(qtensor).astype(np.float64) - weight) ** 2
    return float(np.sqrt(np.mean(square if importance is None else square * importance)))


def error_of_ggml(name: str, weight: np.ndarray, importance: np.ndarray | None) -> float:
    given = np.ones(weight.shape[1], np.float32) if importance is None and name in IMPORTANCE_NEEDED else importance
    blocks = ggml_quantize(weight, get_format(name).gguf_type, given)
    return error(weight, QTensor(name, weight.shape, {"blocks": blocks}), importance)


@needs_ggml
@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("kind", [*KINDS, "reference"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
def test_error_is_at_most_that_of_ggml(name, kind, weighted):
    weight = weight_of(kind)
    importance = importance_of(weight) if weighted else None
    ours = get_format(name).quantize(weight, importance=importance)
    assert error(weight, ours, importance) <= error_of_ggml(name, weight, importance)


@needs_ggml
@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("kind", USUAL)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
def test_the_best_effort_is_clearly_below_ggml(name, kind, weighted):
    fmt, weight = get_format(name), weight_of(kind)
    importance = importance_of(weight) if weighted else None
    best, fast = (
        error(weight, fmt.quantize(weight, importance=importance, effort=effort), importance)
        for effort in ("best", "fast")
    )
    assert best < fast
    assert best <= BEST.get(name, 0.99) * error_of_ggml(name, weight, importance)


@pytest.mark.parametrize("name", TRIED)
def test_importance_moves_the_error_to_less_important_weights(name):
    fmt, weight = get_format(name), make_weight("gauss")
    importance = importance_of(weight)
    plain = fmt.quantize(weight, effort="best")
    weighted = fmt.quantize(weight, importance=importance, effort="best")
    assert error(weight, weighted, importance) < error(weight, plain, importance)
    assert error(weight, weighted) > error(weight, plain)


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("effort", ["fast", "best"])
def test_equal_importance_changes_nothing(name, effort):
    if name in ROUNDED and effort == "fast":
        pytest.skip("without importance the fast way is ggml's rounding, not the search")
    fmt, weight = get_format(name), make_weight("gauss")[:2]
    same = fmt.quantize(weight, importance=np.full(weight.shape[1], 7.0, dtype=np.float32), effort=effort)
    np.testing.assert_array_equal(same.parts["blocks"], fmt.quantize(weight, effort=effort).parts["blocks"])


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("effort", ["fast", "best"])
def test_grid_and_codes_are_the_block(name, effort):
    fmt = get_format(name)
    blocks = make_weight("student_t4")[:2].reshape(-1, fmt.block_size)
    data = fmt.quantize_blocks(blocks, None, effort)
    grid, q = fmt.read_grid(data), fmt.read_codes(data)
    assert grid.qmin <= q.min() and q.max() <= grid.qmax
    np.testing.assert_array_equal(fmt.pack_grid(grid, q), data)
    np.testing.assert_array_equal(grid.scale * q + grid.offset, fmt.dequantize_blocks(data))
    fitted = fmt.fit_grid(blocks, None, effort)
    np.testing.assert_array_equal(fitted.scale, grid.scale)


@pytest.mark.parametrize("name", GRIDS)
def test_grid_takes_any_codes(name):
    fmt = get_format(name)
    grid = fmt.fit_grid(make_weight("gauss")[:1].reshape(-1, fmt.block_size))
    q = np.random.default_rng(3).integers(grid.qmin, grid.qmax + 1, grid.scale.shape)
    data = fmt.pack_grid(grid, q)
    np.testing.assert_array_equal(fmt.read_codes(data), q)
    np.testing.assert_array_equal(fmt.dequantize_blocks(data), grid.scale * q.astype(np.float32) + grid.offset)


@pytest.mark.parametrize("name", GRIDS)
def test_codes_are_the_nearest_of_their_grid(name):
    fmt = get_format(name)
    blocks = make_weight("outliers")[:2].reshape(-1, fmt.block_size)
    data = fmt.quantize_blocks(blocks, None, "best")
    grid = fmt.read_grid(data)
    levels = (grid.scale * np.float32(q) + grid.offset for q in range(grid.qmin, grid.qmax + 1))
    nearest = np.full(blocks.shape, np.inf)
    for level in levels:
        nearest = np.minimum(nearest, np.abs(level.astype(np.float64) - blocks))
    got = np.abs(fmt.dequantize_blocks(data).astype(np.float64) - blocks)
    # Half way between two levels either may be taken: they differ by the rounding of x / scale in float32.
    assert (got - nearest <= 2.0**-19 * (np.abs(grid.offset) + np.abs(blocks))).all()


@pytest.mark.parametrize("name", ["iq4_nl", "iq4_xs", "mxfp4"])
def test_codebooks_are_no_grids(name):
    assert not isinstance(get_format(name), GridFormat)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LATTICES])
@pytest.mark.parametrize("effort", ["fast", "best"])
@pytest.mark.parametrize("scale", [0.0, 1e-42, 1e-36, 1e-20, 1e6, 3e37], ids="{:.0e}".format)
def test_extreme_magnitudes_with_importance(name, effort, scale):
    fmt = get_format(name)
    weight = np.float32(scale) * np.random.default_rng(4).uniform(-1, 1, (2, 512)).astype(np.float32)
    got = fmt.dequantize_ref(fmt.quantize_ref(weight, importance=importance_of(weight), effort=effort))
    assert np.isfinite(got).all()
    half_a_step = 1 / 3 if name == "q2_k" else 0.25  # beyond the largest
    assert np.abs(got).max() <= (1 + half_a_step) * np.abs(weight).max() + 128 * 2.0**-24


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_weights_are_refused_at_any_effort(name, bad):
    weight = np.zeros((2, 256), dtype=np.float32)
    weight[1, 17] = bad
    with pytest.raises(InputError, match=f"{name} holds finite weights"):
        get_format(name).quantize(weight, importance=np.ones(256, dtype=np.float32), effort="best")


@pytest.mark.parametrize("name", TRIED)
def test_importance_of_zero_everywhere_counts_all_the_same(name):
    fmt, weight = get_format(name), make_weight("gauss")[:1]
    none = fmt.quantize(weight, importance=np.zeros(weight.shape[1], dtype=np.float32), effort="best")
    np.testing.assert_array_equal(none.parts["blocks"], fmt.quantize(weight, effort="best").parts["blocks"])
    assert (importance_blocks(np.zeros(64, dtype=np.float32), 64, 32) == 1).all()


@pytest.mark.parametrize(
    "name", [*(name for name in NAMES if name != "mxfp4"), "w8", "w4g128", "w4g128-asym", "w3g128"]
)
def test_the_largest_weight_is_where_the_codec_saturates(name):
    fmt = get_format(name)
    limit = np.float32(fmt.largest_weight)
    unit = np.clip(np.random.default_rng(6).standard_normal((4, 256)) / 2, -1, 1).astype(np.float32)
    unit[:, ::128] = -1
    held, beyond = (fmt.dequantize_ref(fmt.quantize_ref(unit * limit * factor)) for factor in (1, 100))
    for weight in (held, beyond):  # of two bits the steps are a third of the span
        assert 0.6 * limit < np.abs(weight).max() <= 2 * limit
    fmt.check_range(unit * limit)
    with pytest.raises(InputError, match=f"^{name} holds magnitudes up to {limit:.0f}, got "):
        fmt.check_range(unit * np.nextafter(limit, np.float32(np.inf)))


@pytest.mark.parametrize("effort", ["fast", "best"])
def test_a_scale_of_eight_bits_holds_every_float32(effort):
    fmt, largest = get_format("mxfp4"), np.finfo(np.float32).max
    weight = np.random.default_rng(6).uniform(-largest, largest, (4, 256)).astype(np.float32)
    weight[:, ::32] = -largest
    fmt.check_range(weight)
    held = fmt.dequantize_ref(fmt.quantize_ref(weight, effort=effort))
    assert 0.7 * largest < np.abs(held).max() <= largest
