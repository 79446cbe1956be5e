import numpy as np
import pytest

from quant.artifacts.gguf_rope import rows_to_halves, rows_to_pairs, scaling_of_factors
from quant.errors import InputError
from quant.models import RopeConfig


def test_pairs_by_hand():
    # two heads of 4 rows: (0, 2), (1, 3) turn together and become neighbours
    assert rows_to_pairs(8, 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize("num_heads, head_dim", [(1, 2), (3, 8), (8, 64)])
def test_halves_undo_pairs(num_heads, head_dim):
    rows = np.arange(num_heads * head_dim)
    assert np.array_equal(rows[rows_to_pairs(rows.size, num_heads)][rows_to_halves(rows.size, num_heads)], rows)


@pytest.mark.parametrize(
    "theta, original, head_dim, told", [(500000.0, 8192, 64, 65536), (10000.0, 512, 32, 512)], ids=["8192", "told"]
)
def test_llama3_scaling_is_found_again(theta, original, head_dim, told):
    rope = RopeConfig("llama3", theta, factor=32.0, original_max_position_embeddings=original)
    assert scaling_of_factors(rope.frequency_divisors(head_dim), theta, (told,)) == rope.hf_scaling()


@pytest.mark.parametrize(
    "rope",
    [
        RopeConfig("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=8.0),
        RopeConfig("llama3", 500000.0, factor=8.0, low_freq_factor=2.0, high_freq_factor=4.0),
        RopeConfig("llama3", 600.0, factor=8.0),  # no wave so long that it is scaled in full
    ],
    ids=["high", "low", "short waves"],
)
def test_factors_of_other_parameters_are_kept(rope):
    factors = rope.frequency_divisors(64)
    scaling = scaling_of_factors(factors, rope.theta, (999,))
    found = RopeConfig.from_hf({"rope_theta": rope.theta, "rope_scaling": scaling, "max_position_embeddings": 999})
    assert found.has_fixed_factors and found.changes_at is None
    assert np.array_equal(found.frequency_divisors(64), factors)


@pytest.mark.parametrize("factors", [[np.nan, 1.0], [0.0, 0.0], [np.inf, 1.0], [-1.0, 1.0]], ids=str)
def test_factors_that_divide_nothing(factors):
    scaling = scaling_of_factors(np.array(factors, dtype=np.float32), 10000.0, (99,))
    with pytest.raises(InputError, match=r"short_factor is .*, expected a number above 0"):
        RopeConfig.from_hf({"rope_scaling": scaling, "max_position_embeddings": 99})
