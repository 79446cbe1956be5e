import re
from dataclasses import replace

import numpy as np
import pytest
from support.close import assert_close

import cpu_kernels
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.methods import Layer, Rtn, make_method
from quant.methods.gptq import Gptq, damping_steps
from quant.methods.gptq_grids import make_grids
from quant.methods.gptq_ref import gptq_ref
from quant.stats import InputStats

ORDERS = {
    "plain": {"group_aware": False},
    "group_aware": {},
    "act_order": {"act_order": True},
    "act_order_static": {"act_order": True, "static_groups": True},
    "group_aware_static": {"static_groups": True},
}
INTEGERS = ("w4g128", "w4g128-asym", "w3g64", "w2g32-asym", "w8", "w4-asym")
BLOCKS = ("q8_0", "q4_0", "q5_1", "q2_k", "q3_k", "q4_k", "q6_k")


def make_inputs(num_tokens: int, size: int, seed: int = 0) -> np.ndarray:
    """Activations that share directions and have a few loud channels. [num_tokens, K] float32"""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_tokens, size // 8)) @ rng.standard_normal((size // 8, size)) / np.sqrt(size / 8)
    x += 0.5 * rng.standard_normal((num_tokens, size))
    return (x * rng.lognormal(0, 0.7, size)).astype(np.float32)


def stats_of(x: np.ndarray) -> InputStats:
    return InputStats(len(x), np.abs(x).max(axis=0), np.square(x).sum(axis=0), x.T @ x)


def make_weight(num_rows: int, size: int, seed: int = 1) -> np.ndarray:
    return (0.02 * np.random.default_rng(seed).standard_normal((num_rows, size))).astype(np.float32)


def output_error(weight: np.ndarray, qtensor, hessian: np.ndarray) -> float:
    """||(W - Q) X||^2 / ||W X||^2"""
    w, d = weight.astype(np.float64), weight.astype(np.float64) - dequantize(qtensor)
    return float(((d @ hessian) * d).sum() / ((w @ hessian) * w).sum())


X = make_inputs(700, 256)
STATS = stats_of(X)
WEIGHT = make_weight(24, 256)
CONDITION = np.linalg.cond(STATS.hessian + 0.01 * STATS.hessian.diagonal().mean() * np.eye(256))


def quantize(fmt: str, weight=WEIGHT, stats=STATS, **options):
    return make_method("gptq", options).quantize_layer(Layer({"a": weight}, {"a": fmt}), {"a": stats})["a"]


def damped_hessian(stats: InputStats, damp: float = 0.01) -> np.ndarray:
    return stats.hessian + damp * stats.hessian.diagonal().mean() * np.eye(len(stats.hessian))


class Recorded:
    """Grids that keep their questions and answers, so that two runs round to the very same ones."""

    def __init__(self, grids) -> None:
        self.grids, self.fitted = grids, {}
        self.group_size, self.qmin, self.qmax = grids.group_size, grids.qmin, grids.qmax
        self.levels, self.prepare = grids.levels, grids.prepare

    def fit(self, group, values, importance):
        if group not in self.fitted:
            self.fitted[group] = (values, importance, self.grids.fit(group, values, importance))
            return self.fitted[group][2]
        fast_values, fast_importance, grid = self.fitted[group]
        bound = 2**-24 * values.shape[1] * CONDITION**0.5
        assert_close(fast_values, values, atol=bound * np.abs(WEIGHT).max())
        assert_close(fast_importance, importance, rtol=bound)
        return grid

    def pack(self, q, g_idx):
        self.q = q
        return self.grids.pack(q, g_idx)


@pytest.mark.parametrize(
    "fmt, order_name",
    [(fmt, order) for fmt in INTEGERS + BLOCKS for order in ORDERS if fmt in INTEGERS or order != "act_order"],
)
def test_follows_the_textbook_loop(fmt, order_name, monkeypatch):
    method, recorded = Gptq(**ORDERS[order_name]), []
    monkeypatch.setattr(
        "quant.methods.gptq.make_grids", lambda *args: recorded.append(Recorded(make_grids(*args))) or recorded[0]
    )
    got = method.quantize_layer(Layer({"a": WEIGHT}, {"a": fmt}), {"a": STATS})["a"]
    grids = recorded[0]
    fast_q = grids.q
    order = method._order(STATS.hessian.diagonal(), grids.group_size)
    static = method.static_groups or grids.group_size == WEIGHT.shape[1]
    expected_q = gptq_ref(WEIGHT, damped_hessian(STATS), order, grids, static)
    # A float32 target within rounding of the middle of two codes may take the other one, and from there on
    # the row goes its own way: such a row is one in some thousand.
    assert (fast_q != expected_q).any(axis=1).sum() <= 1
    np.testing.assert_array_equal(dequantize(got), dequantize(grids.pack(fast_q, order.g_idx)))


@pytest.mark.parametrize("options", [pytest.param(options, id=name) for name, options in ORDERS.items()])
@pytest.mark.parametrize("fmt", INTEGERS)
def test_error_is_below_rounding_to_nearest(fmt, options):
    nearest = Rtn().quantize_layer(Layer({"a": WEIGHT}, {"a": fmt}), {})["a"]
    assert output_error(WEIGHT, quantize(fmt, **options), STATS.hessian) < 0.8 * output_error(
        WEIGHT, nearest, STATS.hessian
    )


@pytest.mark.parametrize("fmt", BLOCKS)
def test_error_on_blocks_is_below_the_importance_matrix(fmt):
    """The same bytes, and the best result of a search with its statistics of the inputs."""
    imatrix = make_method("imatrix", {}).quantize_layer(Layer({"a": WEIGHT}, {"a": fmt}), {"a": STATS})["a"]
    got = quantize(fmt)
    assert got.size_bytes == imatrix.size_bytes
    assert output_error(WEIGHT, got, STATS.hessian) < 0.8 * output_error(WEIGHT, imatrix, STATS.hessian)


def test_error_falls_with_every_freedom_of_order():
    errors = [output_error(WEIGHT, quantize("w4g32", **ORDERS[name]), STATS.hessian) for name in list(ORDERS)[:3]]
    plain, group_aware, by_importance = errors
    assert by_importance < group_aware < plain


@pytest.mark.parametrize("fmt", ["w4g128", "w4g128-asym", "w3g128", "w4"])
def test_search_is_below_the_range(fmt):
    errors = [output_error(WEIGHT, quantize(fmt, mse=mse), STATS.hessian) for mse in (True, False)]
    assert errors[0] < errors[1]


def test_act_order_reports_the_group_of_each_feature():
    got = quantize("w4g64", act_order=True)
    by_importance = np.argsort(-STATS.hessian.diagonal(), kind="stable")
    np.testing.assert_array_equal(got.shared["g_idx"][by_importance], np.arange(256) // 64)
    for options in ({"act_order": True, "static_groups": True}, {}, {"group_aware": False}):
        assert quantize("w4g64", **options).shared == {}
    assert quantize("w4", act_order=True).shared == {}  # one group: nothing to store


def test_linears_of_one_input_are_factored_once(monkeypatch):
    counted = []
    real = Gptq._solve
    monkeypatch.setattr(Gptq, "_solve", lambda self, *args: counted.append(1) or real(self, *args))
    other = stats_of(make_inputs(300, 256, seed=9))
    weights = {name: make_weight(8, 256, seed) for seed, name in enumerate("qkvo")}
    layer = Layer(weights, {name: "w4g128" for name in weights})
    together = make_method("gptq", {}).quantize_layer(layer, {"q": STATS, "o": other, "k": STATS, "v": STATS})
    assert len(counted) == 2 and list(together) == list("qkvo")
    for name, stats in (("q", STATS), ("o", other), ("v", STATS)):
        alone = quantize("w4g128", weights[name], stats)
        np.testing.assert_array_equal(together[name].parts["weight_packed"], alone.parts["weight_packed"])


def test_float_formats_keep_their_own_rounding():
    got = quantize("bf16", stats=None)
    np.testing.assert_array_equal(dequantize(got), dequantize(get_format("bf16").quantize(WEIGHT)))


@pytest.mark.parametrize("fmt", ["w4g128", "q4_k"])
def test_every_number_of_threads_gives_the_same_bytes(fmt):
    before, results = cpu_kernels.get_num_threads(), []
    weight = make_weight(150, 256)
    try:
        for num_threads in (1, 2):
            cpu_kernels.set_num_threads(num_threads)
            results.append(quantize(fmt, weight, device="cpu"))
    finally:
        cpu_kernels.set_num_threads(before)
    for part, array in results[0].parts.items():
        np.testing.assert_array_equal(array, results[1].parts[part])


def test_fewer_tokens_than_features_work_through_damping():
    x = make_inputs(40, 256)
    got = quantize("w4g128", stats=stats_of(x))
    nearest = Rtn().quantize_layer(Layer({"a": WEIGHT}, {"a": "w4g128"}), {})["a"]
    fresh = stats_of(make_inputs(700, 256)).hessian
    assert np.isfinite(dequantize(got)).all()
    assert output_error(WEIGHT, got, stats_of(x).hessian) < output_error(WEIGHT, nearest, stats_of(x).hessian)
    assert output_error(WEIGHT, got, fresh) < 4 * output_error(WEIGHT, nearest, fresh)


@pytest.mark.parametrize("options", [pytest.param(options, id=name) for name, options in ORDERS.items()])
def test_dead_features_become_zero(options):
    x = X.copy()
    x[:, [0, 17, 255]] = 0
    got = dequantize(quantize("w4g128", stats=stats_of(x), **options))
    assert (got[:, [0, 17, 255]] == 0).all() and np.isfinite(got).all()


@pytest.mark.parametrize("fmt", ["w4g128", "w4g128-asym", "q4_k"])
def test_weights_of_zero_stay_zero(fmt):
    weight = np.zeros_like(WEIGHT)
    assert (dequantize(quantize(fmt, weight)) == 0).all()


def test_damping_increases_until_it_factors():
    """A diagonal that the products do not allow: it takes a damping between 0.1 and 1 of the mean."""
    hessian = np.full((64, 64), 1.0, dtype=np.float32)
    hessian[np.arange(0, 64, 2)] *= -1
    hessian[:, np.arange(0, 64, 2)] *= -1
    np.fill_diagonal(hessian, 0.7)
    stats = InputStats(64, np.ones(64, np.float32), np.ones(64, np.float32), hessian)
    assert np.linalg.eigvalsh(hessian)[0] + 0.01 * 0.7 < 0 < np.linalg.eigvalsh(hessian)[0] + 0.7
    got = quantize("w4g32", make_weight(4, 64), stats, damp=0.01)
    directly = quantize("w4g32", make_weight(4, 64), stats, damp=1.0)
    np.testing.assert_array_equal(got.parts["weight_packed"], directly.parts["weight_packed"])


def test_raised_damping_is_remarked_on():
    x = make_inputs(300, 64)
    good = stats_of(x)
    bad = replace(good, hessian=np.where(np.eye(64) > 0, good.hessian, good.hessian.diagonal().mean()).astype("f4"))
    layer = Layer({"a": make_weight(4, 64), "b": make_weight(4, 64)}, {"a": "w4g32", "b": "w4g32"})
    Gptq(damp=0.0).quantize_layer(layer, {"a": bad, "b": good})
    assert list(layer.remarks) == ["a"]
    assert re.fullmatch(r"damping raised from 0 to (0\.\d+|1) of the mean diagonal", layer.remarks["a"])


def test_damping_steps_end_at_the_mean():
    assert damping_steps(0.01) == pytest.approx([0.01, 0.1, 1.0])
    assert damping_steps(0) == pytest.approx([0, 0.001, 0.01, 0.1, 1.0])
    assert damping_steps(1.0) == [1.0]


def bad_stats(**changes) -> InputStats:
    values = {"num_tokens": 9, "absmax": STATS.absmax, "sum_squares": STATS.sum_squares, "hessian": STATS.hessian}
    return InputStats(**(values | changes))


NAN_WEIGHT = np.where(np.arange(256) == 3, np.float32(np.nan), WEIGHT)


@pytest.mark.parametrize(
    "message, fmt, weight, stats, options",
    [
        pytest.param("a: no calibration token", "w4g128", WEIGHT, None, {}, id="no statistics"),
        pytest.param("a: no calibration token", "w4g128", WEIGHT, bad_stats(num_tokens=0), {}, id="no tokens"),
        pytest.param("Hessian: got none", "w4g128", WEIGHT, bad_stats(hessian=None), {}, id="no Hessian"),
        pytest.param("got shape", "w4g128", WEIGHT, bad_stats(hessian=np.eye(3)), {}, id="Hessian of another layer"),
        pytest.param(
            "got NaN, inf", "w4g128", WEIGHT, bad_stats(hessian=STATS.hessian * np.float32(np.nan)), {}, id="NaN"
        ),
        pytest.param(
            "saw was 0", "w4g128", WEIGHT, bad_stats(hessian=np.zeros((256, 256), np.float32)), {}, id="dead input"
        ),
        pytest.param(
            "not positive definite even with damping 1",
            "w4g128",
            WEIGHT,
            bad_stats(hessian=np.where(np.eye(256, dtype=bool), np.float32(1), np.float32(-1))),
            {},
            id="not positive definite",
        ),
        pytest.param("finite weights", "w4g128", NAN_WEIGHT, STATS, {}, id="NaN weight"),
        pytest.param("multiple of 96", "w4g96", WEIGHT, STATS, {}, id="group size that does not divide K"),
        pytest.param("act_order needs static_groups", "q4_k", WEIGHT, STATS, {"act_order": True}, id="act-order block"),
        pytest.param("iq4_nl has none", "iq4_nl", WEIGHT, STATS, {}, id="codebook"),
    ],
)
def test_impossible_options_are_refused(message, fmt, weight, stats, options):
    with pytest.raises(InputError, match=message):
        make_method("gptq", options).quantize_layer(
            Layer({"a": weight}, {"a": fmt}), {} if stats is None else {"a": stats}
        )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"damp": -0.1}, "damp is -0.1, expected 0 to 1"),
        ({"damp": "much"}, "damp is 'much'"),
        ({"act_order": 1}, "act_order is 1, expected true or false"),
        ({"device": "tpu"}, "device 'tpu', expected one of auto, cpu, cuda"),
        ({"effort": "most"}, "effort"),
    ],
)
def test_bad_option(options, message):
    with pytest.raises(InputError, match=message):
        make_method("gptq", options)
