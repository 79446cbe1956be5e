import numpy as np
import pytest
from support.close import assert_close

from quant.artifacts.rope import Rope, llama3_factors, llama3_scaling, rope_of, rows_to_halves, rows_to_pairs
from quant.errors import InputError

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_pairs_by_hand():
    # two heads of 4 rows: (0, 2), (1, 3) turn together and become neighbours
    assert rows_to_pairs(8, 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize("num_heads, head_dim", [(1, 2), (3, 8), (8, 64)])
def test_halves_undo_pairs(num_heads, head_dim):
    rows = np.arange(num_heads * head_dim)
    assert np.array_equal(rows[rows_to_pairs(rows.size, num_heads)][rows_to_halves(rows.size, num_heads)], rows)


@pytest.mark.parametrize("head_dim, theta", [(64, 500000.0), (128, 500000.0), (32, 10000.0)])
def test_llama3_factors_equal_transformers(head_dim, theta):
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim, rope_parameters={**LLAMA3, "rope_theta": theta}
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    # transformers computes in float32: pow, two quotients and a blend, each within 2**-24, pow within a few more
    assert_close(llama3_factors(Rope(theta, LLAMA3), head_dim), plain / scaled.double().numpy(), rtol=2**-20)


def test_llama3_scaling_is_found_again():
    rope = rope_of({"rope_theta": 500000.0, "rope_scaling": LLAMA3}, "x")
    assert llama3_scaling(llama3_factors(rope, 64), 500000.0, None, "x") == LLAMA3
    other = {**LLAMA3, "original_max_position_embeddings": 512}
    factors = llama3_factors(Rope(10000.0, other), 32)
    assert llama3_scaling(factors, 10000.0, 512, "x") == other


@pytest.mark.parametrize("factors", [[2.0, 1.0], [np.nan, 1.0], [0.0, 0.0], [np.inf, 1.0]], ids=str)
def test_factors_of_no_llama3_scaling(factors):
    with pytest.raises(InputError, match=r"rope_freqs\.weight"):
        llama3_scaling(np.array(factors, dtype=np.float32), 10000.0, None, "x.gguf")


@pytest.mark.parametrize(
    "config, scaling",
    [
        pytest.param({}, None, id="nothing said"),
        pytest.param({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, None, id="default"),
        pytest.param(
            {"rope_scaling": {"type": "linear", "factor": 2.0}}, {"rope_type": "linear", "factor": 2.0}, id="old key"
        ),
        pytest.param({"rope_parameters": {**LLAMA3, "rope_theta": 7.0}}, LLAMA3, id="llama3"),
    ],
)
def test_both_spellings(config, scaling):
    rope = rope_of(config, "x")
    assert rope.scaling == scaling
    assert rope.theta == (7.0 if "rope_parameters" in config else 10000.0)


@pytest.mark.parametrize(
    "config, words",
    [
        pytest.param({"rope_scaling": {"rope_type": "yarn"}}, "'yarn' is not supported; known: default", id="unknown"),
        pytest.param({"rope_scaling": {"rope_type": "linear"}}, "'factor' must be a number", id="missing factor"),
        pytest.param({"rope_theta": -1}, "'rope_theta' must be a number above 0", id="negative theta"),
        pytest.param({"rope_scaling": [1]}, "must be an object", id="a list"),
        pytest.param({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "must be above", id="equal bounds"),
    ],
)
def test_bad_rope(config, words):
    with pytest.raises(InputError, match=words):
        rope_of(config, "config.json")
