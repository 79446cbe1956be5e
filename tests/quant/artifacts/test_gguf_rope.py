import numpy as np
import pytest

from quant.artifacts.gguf_rope import llama3_scaling, rows_to_halves, rows_to_pairs
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
    "theta, original, head_dim, told", [(500000.0, 8192, 64, None), (10000.0, 512, 32, 512)], ids=["8192", "told"]
)
def test_llama3_scaling_is_found_again(theta, original, head_dim, told):
    rope = RopeConfig("llama3", theta, factor=32.0, original_max_position_embeddings=original)
    assert llama3_scaling(rope.frequency_divisors(head_dim), theta, told, "x") == rope.hf_scaling()


@pytest.mark.parametrize("factors", [[2.0, 1.0], [np.nan, 1.0], [0.0, 0.0], [np.inf, 1.0]], ids=str)
def test_factors_of_no_llama3_scaling(factors):
    with pytest.raises(InputError, match=r"rope_freqs\.weight"):
        llama3_scaling(np.array(factors, dtype=np.float32), 10000.0, None, "x.gguf")
