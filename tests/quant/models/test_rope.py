"""RoPE in either spelling, and its scaling against transformers."""

import numpy as np
import pytest
from support.close import assert_close

from quant.errors import InputError
from quant.models import RopeConfig

LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize("head_dim, theta", [(64, 500000.0), (128, 500000.0), (32, 10000.0)])
def test_llama3_divisors_equal_transformers(head_dim, theta):
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = {"rope_type": "llama3", "rope_theta": theta, **LLAMA3}
    config = LlamaConfig(hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim, rope_parameters=parameters)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    # transformers computes in float32: pow, two quotients and a blend, each within 2**-24, pow within a few more
    divisors = RopeConfig("llama3", theta, **LLAMA3).frequency_divisors(head_dim)
    assert_close(divisors, plain / scaled.double().numpy(), rtol=2**-20)


def test_divisors_of_the_other_types():
    assert RopeConfig().frequency_divisors(6).tolist() == [1, 1, 1]
    assert RopeConfig("linear", factor=4.0).frequency_divisors(6).tolist() == [4, 4, 4]


YARNS = {
    "plain": {"factor": 4.0, "original_max_position_embeddings": 32768},
    "deepseek-v2-lite": {
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
    },
    "two magnitudes": {
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
    },
    "given magnitude": {"factor": 8.0, "original_max_position_embeddings": 2048, "attention_factor": 1.5},
    "narrow": {"factor": 8.0, "original_max_position_embeddings": 2048, "beta_fast": 2.0, "beta_slow": 1.9},
}


@pytest.mark.parametrize("head_dim, theta", [(8, 10000.0), (64, 10000.0), (128, 1e6)])
@pytest.mark.parametrize("parameters", YARNS.values(), ids=YARNS.keys())
def test_yarn_equals_transformers(parameters, head_dim, theta):
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    given = {"rope_type": "yarn", "rope_theta": theta, **parameters}
    config = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        head_dim=head_dim,
        max_position_embeddings=163840,
        rope_parameters=dict(given),
    )
    scaled, magnitude = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    rope = RopeConfig.from_hf({"rope_parameters": given})
    plain = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    # as for llama3; and their ramp is a float32 quotient, off by 2**-24 of 1, where a blend may shrink to 1 / factor
    assert_close(rope.frequency_divisors(head_dim), plain / scaled.double().numpy(), rtol=2**-20 * rope.factor)
    assert_close(rope.rotation_scale, magnitude, rtol=2**-40)


def test_only_yarn_scales_the_rotation():
    assert {RopeConfig(kind, factor=4.0).rotation_scale for kind in ("default", "linear", "llama3")} == {1.0}


@pytest.mark.parametrize(
    "scaling",
    [None, {"rope_type": "linear", "factor": 2.0}, {"rope_type": "llama3", **LLAMA3}]
    + [{"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0} | yarn for yarn in YARNS.values()],
    ids=["default", "linear", "llama3", *(f"yarn {name}" for name in YARNS)],
)
def test_scaling_comes_back(scaling):
    assert RopeConfig.from_hf({"rope_scaling": scaling}).hf_scaling() == scaling


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
BOTH = {
    "yarn": {"rope_scaling": YARN, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "theta next to them": {
        "rope_scaling": YARN,
        "rope_theta": 5e5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
    },
    "rope_parameters null": {"rope_scaling": YARN, "rope_parameters": None, "rope_theta": 5e5},
    "rope_scaling null": {"rope_scaling": None, "rope_parameters": {**YARN, "rope_theta": 5e5}},
    "two types": {
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "rope_parameters": {**YARN, "rope_theta": 10000.0},
    },
    "llama3": {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_parameters": {"rope_type": "default"}},
}


@pytest.mark.parametrize("config", BOTH.values(), ids=BOTH.keys())
def test_rope_scaling_goes_before_rope_parameters_as_in_transformers(config):
    """Configs of transformers 5 have rope_parameters, and model cards say that one adds rope_scaling for long texts."""
    pytest.importorskip("transformers")
    from transformers import LlamaConfig

    theirs = LlamaConfig(**{key: dict(value) if isinstance(value, dict) else value for key, value in config.items()})
    ours = RopeConfig.from_hf(config)
    assert ours.theta == theirs.rope_parameters["rope_theta"]
    assert ours == RopeConfig.from_hf({"rope_parameters": theirs.rope_parameters})


def test_rope_scaling_is_for_the_layers_without_a_window():
    pytest.importorskip("transformers")
    from transformers import Gemma3TextConfig

    by_layer = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    linear = {"rope_type": "linear", "factor": 8.0}
    theirs = Gemma3TextConfig(rope_parameters={k: dict(v) for k, v in by_layer.items()}, rope_scaling=dict(linear))
    config = {"rope_parameters": by_layer, "rope_scaling": linear}
    expected = {"rope_parameters": theirs.rope_parameters}
    assert RopeConfig.from_hf(config) == RopeConfig.from_hf(expected) == RopeConfig("linear", 1e6, factor=8.0)
    local = RopeConfig.local_from_hf(config, 1e4)
    assert local == RopeConfig.local_from_hf(expected, 1e4) == RopeConfig("default", 1e4)


def test_two_objects_with_two_bases_are_refused():
    """transformers would take 10000, which nobody wrote."""
    with pytest.raises(
        InputError, match=r"rope_scaling counts, with rope_theta 10000.0, and rope_parameters has .* 1000000"
    ):
        RopeConfig.from_hf({"rope_scaling": YARN, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000}})
