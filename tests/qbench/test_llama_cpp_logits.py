"""GGUF files as llama.cpp's converter makes them: the runtime's logits are llama.cpp's."""

import pytest
import torch
from gguf import GGMLQuantizationType
from support.architectures import EVERY_EXPERT, random_weights, small_config
from support.close import assert_close
from support.llama_converter import convert, gate_and_up_as_one, one_by_one
from support.llama_logits import TOKENS, llama_cpp_logits

from qbench.runtime import load_model
from qbench.sources import open_source
from quant.models import ModelConfig

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

CASES = {
    "llama": ("llama", {}),
    "llama, wide heads, tied": ("llama", {"head_dim": 24, "tie_word_embeddings": True}),
    "mixtral": ("mixtral", {}),
    "gpt2": ("gpt2", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "qwen3moe": ("qwen3moe", {}),
    "deepseek2": ("deepseek2", {}),
    "deepseek2, low-rank queries, scaled": ("deepseek2", {"q_lora_rank": 48, "routed_scaling_factor": 1.5}),
    "deepseek2, yarn": (
        "deepseek2",
        {
            "rope_scaling": {
                "type": "yarn",
                "factor": 8.0,
                "original_max_position_embeddings": 32,
                "mscale": 0.707,
                "mscale_all_dim": 0.707,
            }
        },
    ),
    "deepseek3": ("deepseek3", {}),
}
cases = pytest.mark.parametrize("kind, changes", [pytest.param(*case, id=name) for name, case in CASES.items()])
# llama.cpp's gelu is a table of f16: argument and value are each off by up to 2**-12, in both nets; the worst of 10 240
# logits is 4 deviations out.
GELU_ROUNDING = {"gpt2": 4 * 2**-12 * (2 * 2) ** 0.5}


@cases
def test_float32_weights(tmp_path, kind, changes):
    config = small_config(kind, **changes)
    path = convert(config, random_weights(config), tmp_path / "x.gguf", GGMLQuantizationType.F32)
    source = open_source(str(path))
    assert ModelConfig.of(source) == ModelConfig.from_hf(config)
    expected = llama_cpp_logits(path)
    assert expected.std() > 0.3
    for impl in ("auto", "reference"):
        model = load_model(source, impl=impl)
        # Both compute in float32 and sum in other orders.
        bound = max(2**-16 * ModelConfig.of(source).hidden_size ** 0.5, GELU_ROUNDING.get(kind, 0)) * expected.std()
        assert_close(model(torch.tensor([TOKENS]))[0], expected, atol=bound)
        cache = model.new_cache()
        steps = [model(torch.tensor([[token]]), cache)[0] for token in TOKENS]
        assert_close(torch.cat(steps), expected, atol=bound)


@pytest.mark.parametrize(
    "kind, stack, llama_cpp_reads_it",
    [
        pytest.param("mixtral", one_by_one, False, id="mixtral, a tensor an expert"),
        pytest.param("deepseek2", gate_and_up_as_one, True, id="deepseek2, gate and up as one"),
    ],
)
def test_experts_in_other_stacks(tmp_path, kind, stack, llama_cpp_reads_it):
    config = small_config(kind)
    weights = random_weights(config)
    plain = convert(config, weights, tmp_path / "plain.gguf", GGMLQuantizationType.F32)
    other = convert(config, weights, tmp_path / "other.gguf", GGMLQuantizationType.F32, stack)
    tokens = torch.tensor([TOKENS])
    got = load_model(open_source(str(other)))(tokens)
    assert torch.equal(got, load_model(open_source(str(plain)))(tokens))
    expected = llama_cpp_logits(other if llama_cpp_reads_it else plain)
    assert_close(got[0], expected, atol=2**-16 * config["hidden_size"] ** 0.5 * expected.std())


@cases
def test_float16_weights(tmp_path, kind, changes):
    config = small_config(kind, **changes | EVERY_EXPERT.get(kind, {}))
    path = convert(config, random_weights(config), tmp_path / "x.gguf")
    expected = llama_cpp_logits(path)
    source = open_source(str(path))
    model = load_model(source, impl="reference")
    error = (model(torch.tensor([TOKENS]))[0] - torch.from_numpy(expected)).pow(2).mean().sqrt()
    # llama.cpp rounds the inputs of every product to f16, a uniform half step of 2**-11: 9 products a layer and the
    # head, whose errors add as a walk.
    products = 9 * ModelConfig.of(source).num_layers + 1
    assert_close(error, 0, atol=2**-11 / 3**0.5 * products**0.5 * expected.std())
    assert error > 2**-20 * expected.std(), "nothing was rounded"
