"""Hugging Face configs in, one frozen ModelConfig out."""

import pytest
from support.architectures import small_config

from quant.errors import InputError
from quant.models import ModelConfig, RopeConfig

LLAMA3 = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def without(key: str) -> dict:
    return {name: value for name, value in small_config().items() if name != key}


def test_absent_optional_keys_take_their_meaning():
    optional = ("num_key_value_heads", "tie_word_embeddings", "attention_bias", "mlp_bias", "rope_theta", "hidden_act")
    bare = {name: value for name, value in small_config().items() if name not in optional}
    config = ModelConfig.from_hf(bare)
    assert (config.num_kv_heads, config.head_dim) == (4, 16)
    assert (config.tie_word_embeddings, config.attention_bias, config.mlp_bias) == (False, False, False)
    assert config.rope == RopeConfig("default", 10000.0)
    assert config.eos_token_ids == ()


def test_null_means_absent():
    config = ModelConfig.from_hf(small_config(head_dim=None, num_key_value_heads=None, rope_scaling=None))
    assert (config.head_dim, config.num_kv_heads, config.rope.rope_type) == (16, 4, "default")


def test_architecture_follows_from_only_the_class_name():
    assert ModelConfig.from_hf(without("model_type")).architecture.model_type == "llama"


@pytest.mark.parametrize(
    "changes, expected",
    [
        pytest.param({"rope_theta": 5e5}, RopeConfig("default", 5e5), id="theta at the top"),
        pytest.param(
            {"rope_parameters": {"rope_theta": 5e5}}, RopeConfig("default", 5e5), id="theta in rope_parameters"
        ),
        pytest.param(
            {"rope_scaling": {"type": "linear", "factor": 2}}, RopeConfig("linear", factor=2.0), id="type, the old key"
        ),
        pytest.param(
            {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 5e5},
            RopeConfig("llama3", 5e5, *LLAMA3.values()),
            id="llama3 in rope_scaling",
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
            RopeConfig("llama3", 5e5, *LLAMA3.values()),
            id="llama3 in rope_parameters",
        ),
    ],
)
def test_rope_forms(changes, expected):
    assert ModelConfig.from_hf(small_config(**changes)).rope == expected


@pytest.mark.parametrize("given, expected", [(None, ()), (2, (2,)), ([5, 7], (5, 7))], ids=["none", "one", "several"])
def test_eos_token_ids(given, expected):
    assert ModelConfig.from_hf(small_config(eos_token_id=given)).eos_token_ids == expected


@pytest.mark.parametrize(
    "key",
    [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "max_position_embeddings",
        "rms_norm_eps",
    ],
)
def test_a_missing_key_is_named(key):
    with pytest.raises(InputError, match=rf"^dir/config\.json: key '{key}' is missing"):
        ModelConfig.from_hf(without(key), "dir/config.json")


@pytest.mark.parametrize(
    "changes, message",
    [
        pytest.param({"hidden_size": "64"}, "hidden_size is '64', expected a whole number", id="text for a number"),
        pytest.param({"vocab_size": 0}, "vocab_size is 0", id="zero"),
        pytest.param({"vocab_size": 2**40}, "vocab_size is 1099511627776", id="absurd vocabulary"),
        pytest.param({"num_hidden_layers": 10**6}, "expected a whole number from 1 to 4096", id="absurd depth"),
        pytest.param({"rope_theta": 10**400}, "rope_theta is 1000", id="beyond float"),
        pytest.param({"num_hidden_layers": True}, "num_hidden_layers is True", id="a flag for a number"),
        pytest.param({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan", id="NaN"),
        pytest.param({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'", id="text for a flag"),
        pytest.param({"num_key_value_heads": 3}, "multiple of num_key_value_heads 3", id="heads do not group"),
        pytest.param({"hidden_size": 66}, "not a multiple of num_attention_heads 4", id="head_dim unknown"),
        pytest.param({"head_dim": 15}, "head_dim is 15, expected an even number", id="odd head_dim"),
        pytest.param({"rope_scaling": {"type": "linear"}}, "'factor' is missing", id="linear without its factor"),
        pytest.param({"rope_scaling": "linear"}, "expected an object", id="rope_scaling as text"),
        pytest.param({"rope_theta": -1}, "rope_theta is -1, expected a number above 0", id="negative theta"),
        pytest.param(
            {"rope_scaling": {"rope_type": "llama3", **LLAMA3, "high_freq_factor": 0.5}},
            "high_freq_factor is 0.5, expected more than low_freq_factor",
            id="llama3 band upside down",
        ),
        pytest.param(
            {"rope_scaling": {"rope_type": "yarn"}},
            "'factor' is missing",
            id="yarn by how much",
        ),
        pytest.param(
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 2.0,
                    "original_max_position_embeddings": 64,
                    "beta_fast": 1,
                    "beta_slow": 2,
                }
            },
            "beta_fast is 1.0, expected more than beta_slow 2.0",
            id="yarn band upside down",
        ),
        pytest.param({"eos_token_id": "</s>"}, "eos_token_id is '</s>'", id="eos as text"),
        # The unsupported lists the supported.
        pytest.param({"architectures": ["XLNetModel"]}, "'XLNetModel' is unknown; known: Llama", id="unknown"),
        pytest.param({"architectures": None}, "'architectures' is missing", id="no architecture"),
        pytest.param({"architectures": "Llama"}, "no list", id="no list"),
        pytest.param({"model_type": "gpt2"}, "model_type is 'gpt2', expected 'llama'", id="two minds"),
        pytest.param(
            {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
            "known: default, linear, llama3, yarn, longrope",
            id="rope",
        ),
        pytest.param({"rope_scaling": {"rope_type": ["linear"]}}, "known: default", id="rope_type as a list"),
        pytest.param({"rope_parameters": {"partial_rotary_factor": 1.5}}, "expected at most 1", id="partial rope"),
        pytest.param({"hidden_act": "quick_gelu"}, "hidden_act 'quick_gelu' is not supported", id="activation"),
    ],
)
def test_a_value_that_cannot_be_is_an_input_error(changes, message):
    with pytest.raises(InputError, match=message):
        ModelConfig.from_hf(small_config(**changes))


@pytest.mark.parametrize(
    "changes, message",
    [
        pytest.param({"is_causal": False}, "is_causal is False: attention is not causal", id="is_causal"),
        pytest.param({"use_bidirectional_attention": True}, "use_bidirectional_attention is True", id="bidirectional"),
        pytest.param({"use_bidirectional_attention": "all"}, "'all': attention is not causal", id="a kind of it"),
    ],
)
def test_attention_that_is_not_causal(changes, message):
    """As the configs of embedding models have it, which are decoders otherwise."""
    for kind in ("llama", "qwen2", "gemma3"):
        with pytest.raises(InputError, match=message):
            ModelConfig.from_hf(small_config(kind, **changes))
    causal = {key: {"is_causal": True}.get(key, False) for key in changes}
    assert ModelConfig.from_hf(small_config(**causal)) == ModelConfig.from_hf(small_config())


@pytest.mark.parametrize("key", ["partial_rotary_factor", "rope_parameters"])
def test_a_share_that_the_architecture_does_not_rotate_is_reported_and_ignored(key, caplog):
    """As in transformers: Phi-3 alone, of the known ones, rotates a part of each head."""
    share = {"partial_rotary_factor": 0.5}
    changes = share if key in share else {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, **share}}
    assert ModelConfig.from_hf(small_config("llama", **changes)).rope.rotated_share == 1
    assert "partial_rotary_factor is 0.5, which LlamaForCausalLM does not have" in caplog.text
    assert ModelConfig.from_hf(small_config("phi3", **share)).rope.rotated_share == 0.5


@pytest.mark.parametrize("kind", ["gemma2", "gemma3"])
def test_gemma_does_not_obey_the_usual_name_of_the_activation(kind):
    """transformers reads hidden_activation, whose default is the tanh form."""
    config = {key: value for key, value in small_config(kind).items() if key != "hidden_activation"}
    assert ModelConfig.from_hf({**config, "hidden_act": "gelu"}).activation == "gelu_tanh"
    assert ModelConfig.from_hf({**config, "hidden_activation": "gelu"}).activation == "gelu"


@pytest.mark.parametrize(
    "kind, key, alias", [("gpt2", "n_embd", "hidden_size"), ("gpt2", "n_layer", "num_hidden_layers")]
)
def test_sizes_by_the_other_name_of_transformers(kind, key, alias):
    config = small_config(kind)
    value = config.pop(key)
    assert ModelConfig.from_hf({**config, alias: value}) == ModelConfig.from_hf({**config, key: value})


@pytest.mark.parametrize("rope_type", ["yarn", "llama3"])
def test_a_scaling_without_its_context_is_of_the_config(rope_type):
    """As in transformers: of max_position_embeddings."""
    bands = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling = {"rope_type": rope_type, "factor": 2.0, **(bands if rope_type == "llama3" else {})}
    config = small_config("llama", max_position_embeddings=640, rope_scaling=scaling)
    assert ModelConfig.from_hf(config).rope.original_max_position_embeddings == 640


def test_a_magnitude_of_0_is_ignored():
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    plain, zero = (small_config("llama", rope_scaling={**scaling, **more}) for more in ({}, {"mscale_all_dim": 0}))
    assert ModelConfig.from_hf(zero) == ModelConfig.from_hf(plain)


@pytest.mark.parametrize("kind, width", [("qwen3", 128), ("gemma2", 256), ("gemma3", 256), ("llama", 16)])
def test_width_of_a_head_that_a_config_does_not_name(kind, width):
    config = small_config(kind, hidden_size=64, num_attention_heads=4)
    config.pop("head_dim", None)
    assert ModelConfig.from_hf(config).head_dim == width
