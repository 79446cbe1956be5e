"""Routed experts: the fused kernels equal a loop of single products bit for bit, and that loop is right in float64."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from support.close import assert_close
from support.isas import isas_of
from support.random_linear import random_qtensor

import cpu_kernels
from cpu_kernels.moe import ExpertRef, experts_ref
from quant.formats import dequantize

HIDDEN, NUM_EXPERTS = 256, 7
FORMATS = {"q8_0": "q8_0", "q4_0": "q4_0", "q4_k": "q4_k", "q4_k + q8_0": "q8_0"}  # gate and up -> down
PATHS = ("direct", "tile")


class Layer:
    """Random experts, packed and as the oracle takes them."""

    def __init__(self, gate_up: str, down: str, ffn_sizes: list[int], hidden: int = HIDDEN, num_shared: int = 0):
        formats_and_shapes = [
            ((gate_up, ffn, hidden), (gate_up, ffn, hidden), (down, hidden, ffn)) for ffn in ffn_sizes
        ]
        self.qtensors = [
            [random_qtensor(*what, seed=3 * e + i) for i, what in enumerate(three)]
            for e, three in enumerate(formats_and_shapes)
        ]
        self.packed = [[cpu_kernels.PackedLinear(q.format, q.parts, q.shape) for q in three] for three in self.qtensors]
        self.experts = cpu_kernels.PackedExperts(*map(list, zip(*self.packed, strict=True)), num_shared)
        self.num_routed = len(ffn_sizes) - num_shared

    def ref(self, x, chosen, weights, isa: str | None = None, path: str | None = None) -> np.ndarray:
        experts = [
            ExpertRef(*(lambda rows, linear=linear: linear.matmul(rows, isa=isa, path=path) for linear in three))
            for three in self.packed
        ]
        return experts_ref(x, chosen, weights, experts[: self.num_routed], experts[self.num_routed :])


def random_routing(num_tokens: int, num_chosen: int, num_experts: int = NUM_EXPERTS, seed: int = 5):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
    chosen = rng.permuted(np.tile(np.arange(num_experts), (num_tokens, 1)), axis=1)[:, :num_chosen].copy()
    return x, chosen, rng.random((num_tokens, num_chosen), dtype=np.float32)


@cache  # quantizing takes a hundred times as long as the kernels of any instruction set
def layer_of(formats: tuple[str, str]) -> Layer:
    """formats: an item of FORMATS"""
    return Layer(formats[0].split(" + ")[0], formats[1], [256] * NUM_EXPERTS)


@pytest.fixture(scope="module")
def layer() -> Layer:
    return Layer("q8_0", "q8_0", [96] * NUM_EXPERTS)


@pytest.fixture
def keep_num_threads():
    before = cpu_kernels.get_num_threads()
    yield
    cpu_kernels.set_num_threads(before)


# ---- the oracle


def test_the_oracle_equals_the_formula_in_float64():
    """Products in float64, one token after the other."""
    rng = np.random.default_rng(0)
    nets = rng.standard_normal((NUM_EXPERTS, 3, 16, 16)) / 4
    x, chosen, weights = random_routing(9, 3)
    x = x[:, :16].copy()
    refs = [ExpertRef(*(lambda rows, w=w: (rows @ w.T).astype(np.float32) for w in three)) for three in nets]

    def net(three, row):
        gate, up = three[0] @ row, three[1] @ row
        return three[2] @ (gate / (1 + np.exp(-gate)) * up)

    expected = [
        sum(weight * net(nets[e], row) for e, weight in zip(its, of, strict=True)) + net(nets[0], row)
        for row, its, of in zip(x.astype(np.float64), chosen, weights, strict=True)
    ]
    # Roundings to float32 of three products of 16 terms and of the sum of four experts.
    assert_close(experts_ref(x, chosen, weights, refs, refs[:1]), expected, atol=2**-24 * (3 * 16 + 4) * 4)


# ---- the kernels


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("formats", FORMATS.items(), ids=FORMATS)
def test_equals_the_loop_bit_for_bit(isa, formats, path):
    layer = layer_of(formats)
    x, chosen, weights = random_routing(23, 3)
    out = np.full_like(x, np.nan)
    assert layer.experts.forward(x, chosen, weights, isa=isa, path=path, out=out) is out
    assert layer.experts.last_isa == (isa, isa, isa)
    assert_close(out, layer.ref(x, chosen, weights, isa, path))


@pytest.mark.parametrize("impl", [param for param in isas_of("linear_q8_0") if param.values[0] == "amx"])
@pytest.mark.parametrize("formats", FORMATS.items(), ids=FORMATS)
def test_tiles_equal_the_loop_bit_for_bit(impl, formats):
    layer = layer_of(formats)
    x, chosen, weights = random_routing(150, 2)
    y = layer.experts.forward(x, chosen, weights, isa=impl, path="bf16")
    assert_close(y, layer.ref(x, chosen, weights, impl, "bf16"))
    assert layer.experts.last_isa == (impl, impl, impl)


def test_experts_of_few_and_of_many_tokens_of_one_scale_per_row():
    """Few tokens of W8A8 are prepared in rows, and many in tiles if the processor has them: the bits are the same."""
    layer = Layer("w8a8", "w8a8", [96] * NUM_EXPERTS)
    x, _, weights = random_routing(60, 1)
    chosen = np.repeat([[1], [0]], [9, 51], axis=0)
    assert_close(layer.experts.forward(x, chosen, weights), layer.ref(x, chosen, weights))


@pytest.mark.skipif("amx" not in cpu_kernels.features(), reason="this machine has no amx")
def test_experts_of_few_and_of_many_tokens_round_their_own_inputs(layer, monkeypatch):
    """In one call: 20 tokens of an expert meet its codes with 8 bits, 80 of another one bfloat16 tiles."""
    monkeypatch.delenv("QBENCH_ISA", raising=False)
    monkeypatch.delenv("QBENCH_LINEAR_PATH", raising=False)
    x, _, weights = random_routing(100, 1)
    chosen = np.repeat([[1], [0]], [20, 80], axis=0)
    y = layer.experts.forward(x, chosen, weights)
    assert_close(y[:20], layer.ref(x, chosen, weights, path="tile")[:20])
    assert_close(y[20:], layer.ref(x, chosen, weights, path="bf16")[20:])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("format_name", ["w4g64", "w8", "w8a8", "bf16", "f16", "f32"])
def test_every_family_of_formats_and_rows_that_fill_no_panel(format_name, path):
    groups = format_name == "w4g64"
    hidden, ffn = (256, 192) if groups else (88, 40)
    layer = Layer(format_name, format_name, [ffn] * NUM_EXPERTS, hidden)
    x, chosen, weights = random_routing(23, 3)
    x = x[:, :hidden].copy()
    out = layer.experts.forward(x, chosen, weights, path=path, out=np.full_like(x, np.nan))
    assert_close(out, layer.ref(x, chosen, weights, path=path))


@pytest.mark.parametrize("num_chosen", [1, 2, NUM_EXPERTS])
@pytest.mark.parametrize("num_tokens", [1, 3, 63, 131])
def test_odd_numbers_of_tokens(layer, num_tokens, num_chosen):
    x, chosen, weights = random_routing(num_tokens, num_chosen)
    assert_close(layer.experts.forward(x, chosen, weights, path="tile"), layer.ref(x, chosen, weights, path="tile"))


@pytest.mark.parametrize("num_shared", [1, 2])
def test_experts_of_different_widths_and_shared_ones(num_shared):
    """Widths that fill no panel of 16 rows, and one that is wider than the others, as shared experts are."""
    layer = Layer("q8_0", "q8_0", [32, 96, 32, 64, 160][-3 - num_shared :], num_shared=num_shared)
    x, chosen, weights = random_routing(19, 2, num_experts=3)
    assert_close(layer.experts.forward(x, chosen, weights), layer.ref(x, chosen, weights))
    assert (layer.experts.num_experts, layer.experts.num_shared) == (3, num_shared)


def test_all_tokens_on_one_expert_and_more_than_one_piece(layer):
    """400 tokens of one expert are cut into pieces, and the calls of 1024 tokens into two."""
    x, chosen, weights = random_routing(1100, 2)
    chosen[:400] = [2, 5]
    y = layer.experts.forward(x, chosen, weights, path="tile")
    some = np.r_[0:12, 140:150, 395:405, 1020:1030, 1095:1100]
    assert_close(y[some], layer.ref(x[some], chosen[some], weights[some], path="tile"))


def rounding_variance(row: np.ndarray) -> np.ndarray:
    """Variance of a uniform error of up to half of one code, absmax / 127 of its 32. [K] -> [K]"""
    return np.repeat((np.abs(row.reshape(-1, 32)).max(1) / 254) ** 2 / 3, 32)


def expert_and_variance(three: list[np.ndarray], row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An expert of unrounded activations in float64, and the variance that rounding both inputs adds. 2 x [K]"""
    gate_weight, up_weight, down_weight = three
    gate, up = gate_weight @ row, up_weight @ row
    gate_variance, up_variance = (weight**2 @ rounding_variance(row) for weight in three[:2])
    sigmoid = 1 / (1 + np.exp(-gate))
    hidden, slope = gate * sigmoid * up, sigmoid * (1 + gate * (1 - sigmoid))
    variance = (slope * up) ** 2 * gate_variance + (gate * sigmoid) ** 2 * up_variance + rounding_variance(hidden)
    return down_weight @ hidden, down_weight**2 @ variance


@pytest.mark.parametrize("formats", FORMATS.items(), ids=FORMATS)
def test_near_the_products_of_unrounded_activations(formats):
    """Within 6 deviations: no value of 2048 that are sums of hundreds of errors is beyond."""
    layer = layer_of(formats)
    x, chosen, weights = random_routing(8, 3)
    y = layer.experts.forward(x, chosen, weights)
    dense = [[dequantize(qtensor).astype(np.float64) for qtensor in three] for three in layer.qtensors]
    for m, row in enumerate(x.astype(np.float64)):
        outputs, variances = zip(*(expert_and_variance(dense[e], row) for e in chosen[m]), strict=True)
        deviation = np.sqrt(weights[m].astype(np.float64) ** 2 @ variances)
        assert 6 * deviation.mean() < np.abs(outputs).mean() / 2  # another expert's output would be seen
        assert_close((y[m] - weights[m] @ outputs) / deviation, np.zeros(HIDDEN), atol=np.float64(6))


def test_results_do_not_depend_on_threads_nor_repetition(layer, keep_num_threads):
    x, chosen, weights = random_routing(67, 3)
    cpu_kernels.set_num_threads(1)
    expected = layer.experts.forward(x, chosen, weights)
    for num_threads in (2, 3, 8):
        cpu_kernels.set_num_threads(num_threads)
        for _ in range(20):
            assert_close(layer.experts.forward(x, chosen, weights), expected)


def test_callers_on_several_threads(layer):
    x, chosen, weights = random_routing(13, 3)
    expected = layer.experts.forward(x, chosen, weights)
    with ThreadPoolExecutor(4) as callers:
        for y in callers.map(lambda _: layer.experts.forward(x, chosen, weights), range(100)):
            assert_close(y, expected)


@pytest.mark.parametrize("path", PATHS)
def test_a_token_does_not_see_its_batch(layer, path):
    x, chosen, weights = random_routing(29, 3)
    alone = [
        layer.experts.forward(x[m : m + 1], chosen[m : m + 1], weights[m : m + 1], path=path) for m in range(len(x))
    ]
    assert_close(layer.experts.forward(x, chosen, weights, path=path), np.concatenate(alone))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=["nan", "inf", "-inf"])
def test_nan_and_infinity_reach_every_output_of_only_their_token(layer, bad):
    x, chosen, weights = random_routing(11, 3)
    clean = layer.experts.forward(x, chosen, weights)
    x[4, 37] = bad
    y = layer.experts.forward(x, chosen, weights)
    assert not np.isfinite(y[4]).any()
    assert_close(np.delete(y, 4, axis=0), np.delete(clean, 4, axis=0))


def test_an_expert_may_be_chosen_twice(layer):
    x, chosen, weights = random_routing(6, 3)
    chosen[:, 2] = chosen[:, 0]
    assert_close(layer.experts.forward(x, chosen, weights), layer.ref(x, chosen, weights))


def test_no_tokens_and_no_choices(layer):
    x, chosen, weights = random_routing(4, 2)
    assert layer.experts.forward(x[:0], chosen[:0], weights[:0]).shape == (0, HIDDEN)
    out = np.full_like(x, np.nan)
    assert_close(layer.experts.forward(x, chosen[:, :0].copy(), weights[:, :0].copy(), out=out), np.zeros_like(x))
    assert layer.experts.last_isa is None


def test_nbytes_match_the_linears(layer):
    assert layer.experts.nbytes == sum(linear.nbytes for three in layer.packed for linear in three)


# ---- errors


@pytest.mark.parametrize(
    "change, error, message",
    [
        pytest.param({"x": np.zeros((2, HIDDEN))}, TypeError, r"x: got float64 \[2, 256\]", id="dtype of x"),
        pytest.param({"x": np.zeros((2, 64), np.float32)}, ValueError, "x: .* expected 256 columns", id="columns"),
        pytest.param({"chosen": np.zeros((2, 3), np.int32)}, TypeError, "chosen: got int32", id="dtype of chosen"),
        pytest.param({"chosen": np.zeros((3, 3), np.int64)}, ValueError, "chosen: .* expected 2 rows", id="rows"),
        pytest.param({"chosen": np.full((2, 3), 7)}, ValueError, "got expert 7, expected 0 to 6", id="no such expert"),
        pytest.param({"chosen": np.full((2, 3), -1)}, ValueError, "got expert -1, expected 0 to 6", id="negative"),
        pytest.param({"weights": np.zeros((2, 2), np.float32)}, ValueError, "expected 3 columns", id="weights"),
        pytest.param({"weights": np.zeros((3, 2), np.float32).T}, ValueError, "contiguous", id="strides"),
        pytest.param({"out": np.zeros((2, 64), np.float32)}, ValueError, r"expected float32 \[2, 256\]", id="out"),
        pytest.param({"path": "best"}, ValueError, "path=best: expected direct, tile, bf16 or", id="path"),
        pytest.param({"isa": "sse9"}, RuntimeError, "unknown instruction set", id="isa"),
    ],
)
def test_bad_arguments(layer, change, error, message):
    arguments = {
        "x": np.zeros((2, HIDDEN), np.float32),
        "chosen": np.zeros((2, 3), np.int64),
        "weights": np.zeros((2, 3), np.float32),
    }
    with pytest.raises(error, match=message):
        layer.experts.forward(**(arguments | change))


def packed(format_name: str, num_rows: int, row_size: int) -> cpu_kernels.PackedLinear:
    qtensor = random_qtensor(format_name, num_rows, row_size)
    return cpu_kernels.PackedLinear(qtensor.format, qtensor.parts, qtensor.shape)


def test_experts_that_cannot_run_as_one_name_the_reason(layer):
    gate, up, down = map(list, zip(*layer.packed, strict=True))
    assert cpu_kernels.PackedExperts.obstacle(gate, up, down) is None
    narrow = packed("q8_0", 64, HIDDEN)
    with pytest.raises(ValueError, match=r"expert 6: got gate \[64, 256\], up \[96, 256\], down \[256, 96\]"):
        cpu_kernels.PackedExperts([*gate[:-1], narrow], up, down)
    with pytest.raises(ValueError, match="got 7 gate, 6 up and 7 down"):
        cpu_kernels.PackedExperts(gate, up[1:], down)
    with pytest.raises(ValueError, match="got 0, 0 of them shared, expected one or more"):
        cpu_kernels.PackedExperts([], [], [])
    with pytest.raises(ValueError, match="got 7, 8 of them shared"):
        cpu_kernels.PackedExperts(gate, up, down, 8)
    unlike = packed("bf16", 96, HIDDEN)
    with pytest.raises(ValueError, match="expert 3: gate and up of all experts must round their input alike; bf16"):
        cpu_kernels.PackedExperts(gate, [*up[:3], unlike, *up[4:]], down)
    shared_scale = [packed("w8a8-atensor", *linear.shape) for linear in (gate[0], up[0], down[0])]
    assert "one scale for all tokens" in cpu_kernels.PackedExperts.obstacle(*([linear] for linear in shared_scale))
    with pytest.raises(TypeError):
        cpu_kernels.PackedExperts([None] * 7, up, down)
