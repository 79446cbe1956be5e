import numpy as np
import pytest
from support.close import assert_close

import cpu_kernels
from cpu_kernels.linear_int8 import MAX_ROW_SIZE, PER_CODE, linear_llm_int8_ref

OP = "linear_llm_int8"


def random_weight(num_rows: int, row_size: int, num_known: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(num_rows)
    return {
        "weight": rng.integers(-127, 128, (num_rows, row_size), dtype=np.int8),
        "SCB": (0.5 + rng.random(num_rows)).astype(np.float32),
        "outlier_weight": rng.standard_normal((num_rows, num_known)).astype(np.float16),
        "outlier_features": np.sort(rng.choice(row_size, num_known, replace=False)).astype(np.int32),
    }


def random_x(num_tokens: int, row_size: int, *features: int) -> np.ndarray:
    """The named features are far out in one token, and just at the threshold in another."""
    x = np.random.default_rng(1).uniform(-5.9, 5.9, (num_tokens, row_size)).astype(np.float32)
    x[num_tokens // 2, list(features)] *= 20
    x[-1, list(features)] = 6
    return x


def run(packed: cpu_kernels.PackedLlmInt8, x: np.ndarray, isa: str) -> np.ndarray:
    out = np.full((len(x), packed.shape[0]), np.nan, np.float32)
    assert packed.matmul(x, isa=isa, out=out) is out
    assert packed.last_isa == isa
    return out


def check(parts: dict[str, np.ndarray], x: np.ndarray, isa: str) -> None:
    expected, bound = linear_llm_int8_ref(x, *parts.values())
    assert_close(run(cpu_kernels.PackedLlmInt8(**parts), x, isa), expected, atol=bound)


def test_oracle_is_the_textbook_loop():
    parts, x = random_weight(4, 10, 2), random_x(3, 10, 1, 7)
    known = set(parts["outlier_features"].tolist())
    half = x.astype(np.float16).astype(np.float64)
    far = {k for k in range(10) if k not in known and any(abs(half[m, k]) >= 6 for m in range(3))}
    assert far and known
    expected = np.zeros((3, 4))
    for m in range(3):
        inside = [0.0 if k in known or abs(half[m, k]) >= 6 else half[m, k] for k in range(10)]
        absmax = max(abs(value) for value in inside)
        for n in range(4):
            for k in range(10):
                weight = int(parts["weight"][n, k]) * float(parts["SCB"][n]) / 127
                if k in known:
                    column = list(parts["outlier_features"]).index(k)
                    expected[m, n] += float(x[m, k]) * float(parts["outlier_weight"][n, column])
                elif k in far:
                    expected[m, n] += float(x[m, k]) * weight
                else:
                    expected[m, n] += round(inside[k] * 127 / absmax) * (absmax / 127) * weight
    magnitudes = np.abs(x).astype(np.float64) @ np.abs(parts["weight"] * parts["SCB"][:, None].astype(np.float64)).T
    # The oracle has the constants as float32 has them, bitsandbytes' 1 / 127**2 with 7 digits.
    assert_close(linear_llm_int8_ref(x, *parts.values())[0], expected, atol=5e-7 * magnitudes.max())


@pytest.mark.parametrize("num_known", [0, 2], ids=["none known", "two known"])
@pytest.mark.parametrize("features", [(), (0,), (3, 17, 39)], ids=["no outliers", "one", "three"])
@pytest.mark.parametrize("row_size", [40, 131, 1024], ids="K={}".format)
@pytest.mark.parametrize("num_rows", [1, 17, 131], ids="N={}".format)
def test_matches_oracle(isa, num_rows, row_size, features, num_known):
    parts = random_weight(num_rows, row_size, num_known)
    for num_tokens in (1, 3, 13, 63):
        check(parts, random_x(num_tokens, row_size, *features), isa)


def test_all_features_are_outliers(isa):
    x = random_x(5, 63)
    check(random_weight(19, 63, 3), np.where(x < 0, x - 6, x + 6), isa)
    check(random_weight(19, 63, 63), x, isa)


def test_one_feature_is_all_there_is(isa):
    check(random_weight(3, 1), random_x(4, 1), isa)
    check(random_weight(3, 1), random_x(4, 1, 0), isa)
    check(random_weight(3, 1, 1), random_x(4, 1, 0), isa)


def test_outliers_are_chosen_over_all_tokens_of_a_call(isa):
    """More tokens than are multiplied at once: the last one's outliers are the first one's, too."""
    parts, x = random_weight(17, 64), random_x(1031, 64)
    x[-1, 5] = 100
    check(parts, x, isa)
    without = run(cpu_kernels.PackedLlmInt8(**parts), x[:-1], isa)
    assert not np.array_equal(run(cpu_kernels.PackedLlmInt8(**parts), x, isa)[:-1], without)


def test_activations_are_rounded_to_half_precision_first(isa):
    """Cases that it decides: outliers (5.999 is 6 in float16), and values beyond its range."""
    x = random_x(7, 64)
    x[0, 3], x[1, 4], x[2, 5] = 5.999, 65520, -70000
    x[3], x[4] = 0, 2.0**-26
    x[5, :32] = 2.0**-14 * np.arange(32) / 37
    check(random_weight(33, 64), x, isa)


def test_nan_and_infinity(isa):
    packed = cpu_kernels.PackedLlmInt8(**random_weight(19, 67, 1))
    known = int(random_weight(19, 67, 1)["outlier_features"][0])
    for place in (37, known):
        for bad in (np.nan, np.inf, -np.inf):
            x = random_x(5, 67)
            x[2, place] = bad
            y = run(packed, x, isa)
            assert not np.isfinite(y[2]).any()
            assert np.isfinite(np.delete(y, 2, axis=0)).all()


@pytest.mark.parametrize("shape", [(0, 64, 16), (3, 64, 0), (0, 32, 0)], ids=["M=0", "N=0", "M=N=0"])
def test_empty_products_have_empty_results(isa, shape):
    num_tokens, row_size, num_rows = shape
    packed = cpu_kernels.PackedLlmInt8(**random_weight(num_rows, row_size, 2))
    assert packed.matmul(np.ones((num_tokens, row_size), np.float32), isa=isa).shape == (num_tokens, num_rows)


def test_rows_have_the_known_features_own_weights():
    parts = random_weight(35, 131, 3)
    expected = parts["weight"].astype(np.float32) * parts["SCB"][:, None] * PER_CODE
    expected[:, parts["outlier_features"]] = parts["outlier_weight"]
    index = np.random.default_rng(4).integers(0, 35, 40)
    packed = cpu_kernels.PackedLlmInt8(**parts)
    assert packed.shape == (35, 131)
    assert_close(packed.rows(index), expected[index])


GOOD = random_weight(4, 64, 2)


@pytest.mark.parametrize(
    "name, value, error, message",
    [
        pytest.param("weight", np.zeros((4, 64), np.uint8), TypeError, "got uint8", id="dtype"),
        pytest.param("weight", np.zeros((4, MAX_ROW_SIZE + 1), np.int8), ValueError, "at most", id="too long"),
        pytest.param("SCB", np.ones(3, np.float32), ValueError, "expected 4", id="scales"),
        pytest.param("SCB", np.ones(4), TypeError, "float64", id="dtype of scales"),
        pytest.param("outlier_weight", np.ones((4, 3), np.float16), ValueError, r"\[4, 2\]", id="columns"),
        pytest.param("outlier_weight", np.ones((4, 2), np.float32), TypeError, "float16", id="dtype of columns"),
        pytest.param("outlier_features", np.int32([5, 5]), ValueError, "ascending", id="twice"),
        pytest.param("outlier_features", np.int32([5, 64]), ValueError, "from 0 to 63", id="beyond"),
        pytest.param("outlier_features", np.int32([-1, 5]), ValueError, "from 0 to 63", id="negative"),
        pytest.param("outlier_features", np.int64([1, 5]), TypeError, "int32", id="dtype of features"),
    ],
)
def test_bad_parts(name, value, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedLlmInt8(**(GOOD | {name: value}))


@pytest.mark.parametrize(
    "x, error, message",
    [
        pytest.param(np.zeros((1, 64)), TypeError, "got float64", id="dtype"),
        pytest.param(np.zeros((1, 63), np.float32), ValueError, "expected 64 columns", id="columns"),
        pytest.param(np.zeros((64, 3), np.float32).T, ValueError, "contiguous", id="transposed"),
    ],
)
def test_bad_x(x, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedLlmInt8(**GOOD).matmul(x)
