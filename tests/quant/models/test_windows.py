"""Which layers attend to a window, from a config's many ways to say it."""

import pytest
from support.architectures import small_config

from quant.errors import InputError
from quant.models import ModelConfig

SWITCHED_ON = {"use_sliding_window": True, "sliding_window": 32}
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    "kind, changes, windows",
    [
        pytest.param("llama", {}, (), id="llama"),
        pytest.param("mistral", {"sliding_window": 32}, (32, 32, 32), id="mistral"),
        pytest.param("mistral", {"sliding_window": None}, (), id="mistral, null"),
        pytest.param("mistral", {"sliding_window": 32, "layer_types": TYPES}, (32, 0, 32), id="mistral by layer"),
        pytest.param("qwen2", {"sliding_window": 32}, (), id="qwen2, switched off"),
        pytest.param("qwen2", {**SWITCHED_ON, "max_window_layers": 2}, (0, 0, 32), id="qwen2 from layer 2"),
        pytest.param("qwen2", SWITCHED_ON, (), id="qwen2 from layer 28"),
        pytest.param("qwen3", {**SWITCHED_ON, "layer_types": TYPES}, (32, 0, 32), id="qwen3 by layer"),
    ],
)
def test_windows_of_layers(kind, changes, windows):
    config = ModelConfig.from_hf(small_config(kind, num_hidden_layers=3, **changes))
    assert config.windows == windows
    assert [config.attention_rule(layer).window for layer in range(3)] == list(windows or (0, 0, 0))


def test_a_mistral_config_without_a_window_has_the_usual_one():
    config = small_config("mistral")
    del config["sliding_window"]
    assert set(ModelConfig.from_hf(config).windows) == {4096}


@pytest.mark.parametrize(
    "kind, changes, message",
    [
        pytest.param("llama", {"use_sliding_window": True}, "has no attention over a window", id="switch"),
        pytest.param("llama", {"layer_types": TYPES}, "names sliding_attention, and this", id="layers"),
        pytest.param("qwen3", {"layer_types": TYPES}, "'sliding_window' is missing", id="how wide"),
        pytest.param("mistral", {"sliding_window": 0}, "sliding_window is 0", id="zero"),
        pytest.param("qwen3", {"layer_types": TYPES[:2]}, "expected a list of 3 types", id="too few"),
        pytest.param(
            "qwen3",
            {"layer_types": ["linear_attention"] * 3},
            "'linear_attention', known: full_attention, sliding_attention",
            id="unknown",
        ),
    ],
)
def test_unsupported_keys_are_refused_by_name(kind, changes, message):
    with pytest.raises(InputError, match=message):
        ModelConfig.from_hf(small_config(kind, num_hidden_layers=3, **changes))
