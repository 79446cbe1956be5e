"""Products with a trellis code: turned inputs, values that are decoded in registers, and outputs turned back."""

import numpy as np
import pytest
from support.threads import assert_threads_change_nothing

import cpu_kernels
from qbench.kernels.case import random_weight
from qbench.kernels.linear_trellis import problems, trellis_ref
from quant.formats import dequantize, get_format

BITS = (1, 2, 3, 4)
ISAS = [row["impl"] for row in cpu_kernels.op_table() if row["op"] == "linear_trellis-w2" and row["available"]]
DIRECT_ISAS = [isa for isa in ISAS if isa != "amx"]
SHAPE = (64, 336)  # K is no whole number of steps of 32


def weight_of(name: str, shape: tuple[int, int] = SHAPE):
    return random_weight(get_format(name), shape, np.random.default_rng(7))


def pack(qtensor, exact: bool = False) -> cpu_kernels.PackedLinear:
    return cpu_kernels.PackedLinear(qtensor.format, qtensor.parts, qtensor.shape, exact)


def inputs(num_tokens: int, row_size: int = SHAPE[1]) -> np.ndarray:
    return np.random.default_rng(num_tokens).standard_normal((num_tokens, row_size)).astype(np.float32)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("isa", ISAS)
def test_products_match_the_reference(isa, bits):
    for problem in problems(bits):
        if isa not in problem.not_for:
            y, ran = problem.run(isa)
            assert ran == isa and problem.check(y).is_right, problem.label


@pytest.mark.parametrize("name", ["trellis-w2", "trellis-w3-l12", "trellis-w4"])
def test_a_product_is_near_that_of_the_float_weight(name):
    """Without any code of the turn: dequantized rows, plain x, and six deviations of the rounding of x to 8 bits."""
    weight, x = weight_of(name), inputs(40)
    expected = x @ dequantize(weight).T
    step = np.abs(x).max(axis=1, keepdims=True) / 127 * np.linalg.norm(dequantize(weight), axis=1) / 12**0.5
    for path in ("direct", "int8x256", *(["bf16"] if "amx" in ISAS else [])):
        assert (np.abs(pack(weight).matmul(x, path=path) - expected) < 6 * step).all()


@pytest.mark.parametrize("isa", DIRECT_ISAS)
def test_a_token_alone_has_the_bits_of_a_token_among_others(isa):
    packed, x = pack(weight_of("trellis-w3")), inputs(19)
    together = packed.matmul(x, isa=isa, path="direct")
    alone = [packed.matmul(x[i : i + 1], isa=isa, path="tile") for i in range(len(x))]
    np.testing.assert_array_equal(np.concatenate(alone), together)


def test_instruction_sets_except_scalar_have_the_same_bits():
    """Sums of products are exact, and floats are added in one order; scalar code has no fused multiply and add."""
    packed, x = pack(weight_of("trellis-w2")), inputs(3)
    found = [packed.matmul(x, isa=isa, path="direct") for isa in DIRECT_ISAS if isa != "scalar"]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_every_number_of_threads_gives_the_same_bits():
    packed, x = pack(weight_of("trellis-w2", (320, 512))), inputs(33, 512)
    for path in ("direct", "int8x256", *(["bf16"] if "amx" in ISAS else [])):
        assert_threads_change_nothing((1, 3), lambda path=path: packed.matmul(x, path=path))


@pytest.mark.parametrize("name", ["trellis-w1", "trellis-w2-l8", "trellis-w3", "trellis-w4-l13"])
def test_rows_are_the_bits_of_the_reference(name):
    weight = weight_of(name)
    index = np.array([0, 17, 63, 17, 32])
    expected = get_format(name).dequantize_ref(weight)[index]
    np.testing.assert_array_equal(pack(weight).rows(index), expected)


@pytest.mark.parametrize("name", ["trellis-w1", "trellis-w2", "trellis-w3-l9", "trellis-w4"])
def test_bytes_of_one_weight_are_another(name):
    packed, x = pack(weight_of(name)), inputs(3)
    assert packed.nbytes == cpu_kernels.packed_linear_bytes(name, SHAPE) == 64 * (352 * int(name[9]) // 8 + 4)
    memory = np.zeros(packed.nbytes + 64, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :][: packed.nbytes]
    other = cpu_kernels.PackedLinear(name, {"packed": memory}, SHAPE)
    memory[:] = packed.bytes
    np.testing.assert_array_equal(other.matmul(x), packed.matmul(x))
    np.testing.assert_array_equal(other.rows(np.array([5])), packed.rows(np.array([5])))


def test_many_tokens_meet_rounded_codes_unless_that_is_switched_off(monkeypatch):
    weight, x = weight_of("trellis-w4"), inputs(40)  # more tokens meet tiles of bfloat16
    packed, exact = pack(weight), pack(weight, exact=True)
    assert [packed.choice(n)[1] for n in (1, 7, 8)] == ["direct", "direct", "int8x256"]
    assert exact.choice(512)[1] == "direct"
    rounded = packed.matmul(x)
    assert (rounded != exact.matmul(x)).any()
    for y, is_rounded in ((rounded, True), (exact.matmul(x), False)):
        expected, bound = trellis_ref(weight, x, is_rounded)
        assert (np.abs(y - expected) <= bound).all()
        other, other_bound = trellis_ref(weight, x, not is_rounded)
        assert (np.abs(y - other) > other_bound).any(), "the bound tells one from the other"
    monkeypatch.setenv("QBENCH_K_QUANT_COMPUTE", "exact")
    assert packed.choice(512)[1] == "direct"
    monkeypatch.setenv("QBENCH_K_QUANT_COMPUTE", "int8x256")
    assert exact.choice(1)[1] == "direct" and exact.choice(512)[1] == "int8x256"


def test_one_input_is_prepared_for_all_weights_of_a_size():
    """A group takes weights of several codes, whose inputs are the same."""
    weights = [pack(weight_of(name)) for name in ("trellis-w2", "trellis-w4", "trellis-w3-l10")]
    x = inputs(5)
    together = cpu_kernels.LinearGroup(weights, [None] * 3).multiply(x)
    for found, weight in zip(together, weights, strict=True):
        np.testing.assert_array_equal(found, weight.matmul(x))


@pytest.mark.parametrize(
    "name", ["trellis", "trellis-w0", "trellis-w5", "trellis-w2-l7", "trellis-w2-l17", "trellis-w2-"]
)
def test_names_without_a_kernel(name):
    assert not cpu_kernels.has_packed_linear(name)


def test_arguments_are_checked():
    weight = weight_of("trellis-w2")
    for shape in ((24, 64), (16, 24)):
        with pytest.raises(ValueError, match="expected multiples of 16 for trellis-w2"):
            cpu_kernels.PackedLinear("trellis-w2", weight.parts, shape)
        with pytest.raises(ValueError, match="expected multiples of 16 for trellis-w2"):
            cpu_kernels.packed_linear_bytes("trellis-w2", shape)
    with pytest.raises(ValueError, match="got parts weight_scale, expected weight_trellis"):
        cpu_kernels.PackedLinear("trellis-w2", {"weight_scale": weight.parts["weight_scale"]}, SHAPE)
    with pytest.raises(ValueError, match=r"weight_trellis: got uint8 \[64, 84\], expected uint8 \[64, 126\]"):
        cpu_kernels.PackedLinear("trellis-w3", weight.parts, SHAPE)
    with pytest.raises(TypeError, match="weight_scale: got float64"):
        parts = weight.parts | {"weight_scale": weight.parts["weight_scale"].astype(np.float64)}
        cpu_kernels.PackedLinear("trellis-w2", parts, SHAPE)
