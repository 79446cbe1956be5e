import numpy as np
import pytest
from support.close import assert_close
from support.threads import assert_threads_change_nothing

from cpu_kernels.gptq import GptqFeedback, coefficients_ref, gptq_factorize, gptq_search_grid, targets_ref

OP = "gptq"
SIZES = (1, 3, 63, 64, 65, 131, 200)


def make_hessian(size: int, seed: int = 0) -> np.ndarray:
    """Correlated inputs, condition number about 1e3. [K, K] float32"""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2 * size + 8, size)) + rng.standard_normal((2 * size + 8, 1))
    return (x.T @ x + 0.5 * np.eye(size)).astype(np.float32)


def make_weight(num_rows: int, size: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((num_rows, size)).astype(np.float32)


def factor_of(hessian: np.ndarray, order: np.ndarray | None = None, isa: str | None = None):
    order = np.arange(len(hessian)) if order is None else order
    return gptq_factorize(hessian, hessian.diagonal().copy(), order, isa=isa)


def rounded_in_steps(hessian, weight, steps, isa=None) -> np.ndarray:
    """Codes of every column, a grid of 0.1 and offset 0.05, `steps` columns at a time. [N, K] int8"""
    order = np.arange(len(hessian))
    feedback = GptqFeedback(factor_of(hessian, isa=isa), weight, order, isa=isa)
    grid = np.full((len(weight), 1), 0.1, dtype=np.float32)
    codes = []
    for begin in range(0, len(hessian), steps):
        codes.append(feedback.round(min(begin + steps, len(hessian)), grid, grid / 2, -128, 127))
    assert isa is None or feedback.last_isa == isa
    return np.concatenate(codes, axis=1)


@pytest.mark.parametrize("size", SIZES)
def test_factor_times_itself_is_the_hessian(size):
    hessian = make_hessian(size)
    factor = factor_of(hessian)
    upper = (factor.coefficients(0, size) + np.eye(size)) * factor.diagonal
    bound = 2**-23 * np.sqrt(size + 8) * hessian.diagonal().max()
    assert_close(upper @ upper.T, hessian, atol=bound)


@pytest.mark.parametrize("size", SIZES)
def test_coefficients_match_the_reference(size):
    hessian = make_hessian(size)
    got = factor_of(hessian).coefficients(0, size)
    expected = coefficients_ref(hessian) - np.eye(size)
    assert_close(got, expected, atol=2**-23 * np.linalg.cond(hessian.astype(np.float64)) ** 0.5 * (size + 8) ** 0.5)
    assert (got[np.tril_indices(size)] == 0).all()


def test_order_permutes_the_hessian():
    hessian, order = make_hessian(70), np.random.default_rng(3).permutation(70)
    permuted = np.ascontiguousarray(hessian[np.ix_(order, order)])
    np.testing.assert_array_equal(
        factor_of(hessian, order).coefficients(5, 70), factor_of(permuted).coefficients(5, 70)
    )


@pytest.mark.parametrize("num_rows", [1, 63, 130])
@pytest.mark.parametrize("size, steps", [(1, 1), (65, 5), (131, 64), (200, 200)])
def test_round_follows_the_textbook(num_rows, size, steps):
    hessian, weight = make_hessian(size), make_weight(num_rows, size)
    q = rounded_in_steps(hessian, weight, steps)
    rounded = (np.float32(0.1) * q + np.float32(0.05)).astype(np.float32)
    coefficients = coefficients_ref(hessian)
    for c in range(size):
        target = targets_ref(weight, rounded[:, :c], coefficients)
        # A code is the nearest one to the fp64 target, except for targets within rounding of the middle of two.
        assert_close(rounded[:, c], target, atol=0.05 * (1 + 2**-10))


@pytest.mark.parametrize("begin, end", [(0, 40), (40, 131)])
def test_expect_matches_an_infinitely_fine_grid(begin, end):
    hessian, weight = make_hessian(131), make_weight(65, 131)
    feedback = GptqFeedback(factor_of(hessian), weight, np.arange(131))
    grid = np.full((65, 1), 0.1, dtype=np.float32)
    values = np.zeros((65, 131))
    if begin:
        values[:, :begin] = np.float32(0.1) * feedback.round(begin, grid, 0 * grid, -128, 127)
    got = feedback.expect(end)
    coefficients = coefficients_ref(hessian)
    for c in range(begin, end):
        values[:, c] = targets_ref(weight, values[:, :c], coefficients)
    assert_close(got, values[:, begin:end], atol=2**-23 * 131 * np.abs(weight).max())
    if not begin:
        np.testing.assert_array_equal(got, weight[:, :end])


def test_every_instruction_set_gives_the_same_bits(isa):
    hessian, weight = make_hessian(131), make_weight(70, 131)
    reference, got = factor_of(hessian, isa="scalar"), factor_of(hessian, isa=isa)
    np.testing.assert_array_equal(got.coefficients(0, 131), reference.coefficients(0, 131))
    np.testing.assert_array_equal(got.diagonal, reference.diagonal)
    np.testing.assert_array_equal(
        rounded_in_steps(hessian, weight, 32, isa), rounded_in_steps(hessian, weight, 32, "scalar")
    )


def test_every_number_of_threads_gives_the_same_bits():
    hessian, weight = make_hessian(300), make_weight(300, 300)
    assert_threads_change_nothing(
        (1, 2, 5), lambda: (factor_of(hessian).coefficients(0, 300), rounded_in_steps(hessian, weight, 64))
    )


def test_a_scale_of_zero_takes_code_zero():
    weight = np.ones((2, 4), dtype=np.float32)
    feedback = GptqFeedback(factor_of(np.eye(4, dtype=np.float32)), weight, np.arange(4))
    zero = np.zeros((2, 1), dtype=np.float32)
    assert (feedback.round(4, zero, zero, -8, 7) == 0).all()


def search_case(num_rows: int, num_columns: int):
    """values, cost, and 5 grids of 16 steps per row, every other one off centre"""
    rng = np.random.default_rng(4)
    values = rng.standard_t(4, (num_rows, num_columns)).astype(np.float32)
    cost = rng.lognormal(0, 1, num_columns).astype(np.float32)
    scale = np.linspace(0.1, 0.6, 5, dtype=np.float32)[:, None] * np.ones((5, num_rows), dtype=np.float32)
    lowest = np.where(np.arange(num_rows) % 2, -8, -5) * np.ones((5, num_rows))
    return values, cost, scale, lowest.astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (64, 32), (131, 128)])
def test_search_finds_the_grid_of_least_error(isa, shape):
    values, cost, scale, lowest = search_case(*shape)
    best = gptq_search_grid(values, cost, scale, lowest, 15, isa=isa)
    steps = values / scale.astype(np.float64)[:, :, None]  # [trials, N, columns]
    nearest = np.clip(np.rint(steps), lowest[:, :, None], lowest[:, :, None] + 15) * scale[:, :, None]
    errors = np.square(values - nearest) @ cost.astype(np.float64)
    assert_close(errors[best, np.arange(shape[0])], errors.min(axis=0), rtol=2**-23 * (shape[1] + 8))
    assert shape[0] < 64 or len(set(best)) > 1


def test_search_takes_the_first_of_equals():
    values, cost, scale, lowest = search_case(5, 8)
    same = np.repeat(scale[2:3], 5, axis=0)
    assert (gptq_search_grid(values, cost, same, lowest, 15) == 0).all()


@pytest.mark.parametrize(
    "hessian",
    [
        pytest.param(np.ones((80, 80)), id="rank one"),
        pytest.param(-np.eye(80), id="negative"),
        pytest.param(np.full((80, 80), np.nan), id="NaN"),
    ],
)
def test_a_matrix_that_is_not_positive_definite_has_no_factor(hessian):
    assert factor_of(hessian.astype(np.float32)) is None


def test_bad_arguments():
    hessian, weight = make_hessian(8), make_weight(3, 8)
    order, factor = np.arange(8), factor_of(make_hessian(8))
    with pytest.raises(ValueError, match="order: expected each of 0 to 7 once"):
        factor_of(hessian, np.zeros(8, dtype=np.int64))
    with pytest.raises(TypeError, match="hessian: got float64"):
        factor_of(hessian.astype(np.float64))
    with pytest.raises(ValueError, match="weight"):
        GptqFeedback(factor, weight[:, :7].copy(), order)
    feedback = GptqFeedback(factor, weight, order)
    grid = np.ones((3, 3), dtype=np.float32)
    with pytest.raises(ValueError, match="S a divisor of 4"):
        feedback.round(4, grid, grid, -8, 7)
    with pytest.raises(ValueError, match="end: got 9, expected above 0, at most 8"):
        feedback.expect(9)
    values, cost, scale, lowest = search_case(3, 8)
    with pytest.raises(ValueError, match=r"expected \[N, columns\], \[columns\] and twice \[trials, N\]"):
        gptq_search_grid(values, cost[:7], scale, lowest, 15)
    with pytest.raises(ValueError, match="codes: got -8 to 200"):
        feedback.round(4, grid[:, :1].copy(), grid[:, :1].copy(), -8, 200)


@pytest.mark.parametrize("distance, is_definite", [(2.0**-24, False), (2.0**-20, True)])
def test_a_pivot_that_is_the_rounding_of_its_sum_is_refused(distance, is_definite):
    """The second pivot is twice `distance`; below 2**-22 it is noise."""
    alike = np.float32(1 - distance)
    hessian = np.array([[1, alike], [alike, 1]], dtype=np.float32)
    assert (gptq_factorize(hessian, np.ones(2, np.float32), np.arange(2)) is not None) == is_definite
