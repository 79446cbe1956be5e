import numpy as np
import pytest
import torch
from support.threads import assert_threads_change_nothing

from cpu_kernels.gram import add_gram, add_gram_ref
from cpu_kernels.linear_float import round_to_bf16_ref

OP = "gram"
SHAPES = [(0, 3), (1, 1), (2, 64), (3, 65), (131, 63), (128, 131), (257, 200)]


def rows(num_tokens: int, row_size: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((num_tokens, row_size)).astype(np.float32)


def gram_of(x: np.ndarray, isa: str | None = None, start: float = 0.0) -> np.ndarray:
    """The upper triangle."""
    gram = np.full((x.shape[1], x.shape[1]), start, dtype=np.float32)
    ran = add_gram(x, gram, isa=isa)
    assert isa is None or ran == isa
    return np.triu(gram)


def test_rounding_is_torchs():
    x = np.concatenate([rows(40, 50).ravel(), np.float32([0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 3e38, 1e-40, np.inf])])
    assert np.array_equal(round_to_bf16_ref(x), torch.from_numpy(x).bfloat16().float().numpy())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gram_is_the_reference_of_rounded_rows(isa, shape):
    x = rows(*shape)
    expected, magnitudes = np.ones((shape[1], shape[1])), np.ones((shape[1], shape[1]))
    add_gram_ref(x, expected)
    add_gram_ref(np.abs(x), magnitudes)
    error = np.abs(gram_of(x, isa, start=1.0) - np.triu(expected))
    assert (error <= 2**-24 * (shape[0] + 1) * magnitudes).all(), "more than a rounding for each exact product"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_instruction_set_gives_the_same_bits(isa, shape):
    x = rows(*shape)
    np.testing.assert_array_equal(gram_of(x, isa), gram_of(x, "scalar"))


def test_every_number_of_threads_gives_the_same_bits():
    assert_threads_change_nothing((1, 2, 5), lambda: gram_of(rows(150, 400)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, np.uint32(0x7F800001).view(np.float32)], ids=["NaN", "inf", "low NaN"])
def test_non_finite_values_stay_non_finite(isa, bad):
    x = rows(5, 70)
    x[3, 66] = bad
    gram = gram_of(x, isa)
    assert not np.isfinite(gram[:67, 66]).any() and not np.isfinite(gram[66, 66:]).any()
    assert np.isfinite(gram[:66, :66]).all()


@pytest.mark.parametrize(
    "x, gram, error",
    [
        pytest.param(np.zeros((2, 4)), np.zeros((4, 4), np.float32), TypeError, id="float64 rows"),
        pytest.param(np.zeros((2, 4), np.float32), np.zeros((4, 4)), TypeError, id="float64 gram"),
        pytest.param(np.zeros(4, np.float32), np.zeros((4, 4), np.float32), ValueError, id="one row"),
        pytest.param(np.zeros((2, 4), np.float32), np.zeros((4, 5), np.float32), ValueError, id="not square"),
        pytest.param(np.zeros((4, 2), np.float32).T, np.zeros((4, 4), np.float32), ValueError, id="strided"),
    ],
)
def test_wrong_arguments_are_refused(x, gram, error):
    with pytest.raises(error, match=r"x: got|gram: (got|expected)"):
        add_gram(x, gram)


def test_an_instruction_set_that_is_not_here_is_refused():
    with pytest.raises(RuntimeError, match="gram"):
        add_gram(rows(2, 4), np.zeros((4, 4), np.float32), isa="avx512_vnni")
