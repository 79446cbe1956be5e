import gguf
import pytest

from quant.artifacts.architecture import ARCHITECTURES, HEAD, expected_tensors
from quant.errors import InputError


def test_gguf_names_are_those_of_the_gguf_package(memory_source):
    config = memory_source().config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, want in expected_tensors(config, "x").items():
        assert names.get_name(name, try_suffixes=(".weight",)) == want.gguf_name


def test_shapes_are_those_of_transformers(memory_source):
    transformers = pytest.importorskip("transformers")
    import torch

    config = memory_source().config
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert {name: want.shape for name, want in expected_tensors(config, "x").items()} == shapes


def test_tied_models_have_no_head(memory_source):
    assert HEAD not in expected_tensors(memory_source(tie_word_embeddings=True).config, "x")


@pytest.mark.parametrize("key", ARCHITECTURES["LlamaForCausalLM"].required)
def test_missing_key_is_named(memory_source, key):
    config = {**memory_source().config}
    del config[key]
    with pytest.raises(InputError, match=rf"dir/config\.json: key '{key}' is missing"):
        expected_tensors(config, "dir/config.json")


@pytest.mark.parametrize(
    "changes, words",
    [
        pytest.param({"architectures": ["OPTForCausalLM"]}, "'OPTForCausalLM' is unknown; known: Llama", id="unknown"),
        pytest.param({"architectures": None}, "'architectures' is missing", id="no architecture"),
        pytest.param({"architectures": "Llama"}, "no list", id="no list"),
        pytest.param({"hidden_size": "128"}, "'hidden_size' must be a whole number", id="text"),
        pytest.param({"hidden_size": 0}, "'hidden_size' must be a whole number", id="zero"),
        pytest.param({"vocab_size": 2**40}, "'vocab_size' must be a whole number", id="absurd vocabulary"),
        pytest.param({"num_hidden_layers": 10**6}, "num_hidden_layers 1000000 is absurd", id="absurd layers"),
        pytest.param({"num_key_value_heads": 3}, "cannot share 3", id="uneven heads"),
        pytest.param({"head_dim": 33}, "is odd", id="odd head"),
        pytest.param({"attention_bias": True}, "attention_bias = True is not supported", id="biases"),
        pytest.param({"hidden_act": "gelu"}, "'gelu' is not supported", id="activation"),
    ],
)
def test_bad_config(memory_source, changes, words):
    with pytest.raises(InputError, match=words):
        expected_tensors({**memory_source().config, **changes}, "config.json")
