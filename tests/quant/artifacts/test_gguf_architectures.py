"""GGUF files of every architecture: back as they were, and the same function in llama.cpp as in transformers."""

import gguf
import numpy as np
import pytest
from support.architectures import GGUF_KINDS, random_weights, small_config
from support.array_source import ArraySource

from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_writer import write_gguf
from quant.errors import InputError
from quant.formats import dequantize
from quant.models import ModelConfig


def small_source(kind: str, formats=None, **changes) -> ArraySource:
    config = small_config(kind, **changes)
    return ArraySource(config, random_weights(config), formats)


@pytest.mark.parametrize("max_shard_bytes", [None, 50_000], ids=["one file", "shards"])
@pytest.mark.parametrize("kind", GGUF_KINDS)
def test_config_and_weights_come_back(tmp_path, kind, max_shard_bytes):
    source = small_source(kind)
    write_gguf(source, tmp_path / "x.gguf", name="x", max_shard_bytes=max_shard_bytes)
    again = GGUFSource(min(tmp_path.glob("*.gguf")))
    assert ModelConfig.of(again) == ModelConfig.of(source)
    assert list(again.tensors.items()) == list(source.tensors.items())
    for name in source.tensors:
        assert np.array_equal(dequantize(again.read(name)), dequantize(source.read(name))), name


# For a "llama" that attends to a window, llama.cpp reads no window: both compute the same until it is full.
WINDOW_IGNORED = {"mistral": 24}


@pytest.mark.parametrize("kind", GGUF_KINDS)
def test_llama_cpp_computes_transformers_logits(tmp_path, kind, byte_level_tokenizer):
    llama_cpp = pytest.importorskip("llama_cpp")
    pytest.importorskip("transformers")
    import torch
    from support.transformers_model import logits_of, transformers_model

    config = small_config(kind, vocab_size=320)
    weights = random_weights(config)
    source = ArraySource(config, weights, tokenizer=byte_level_tokenizer)
    write_gguf(source, tmp_path / "x.gguf", name="x")
    tokens = list(range(5, 69))[: WINDOW_IGNORED.get(kind)]
    f32 = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32}
    theirs = llama_cpp.Llama(
        str(tmp_path / "x.gguf"), verbose=False, n_ctx=128, n_threads=1, n_threads_batch=1, logits_all=True, **f32
    )
    theirs.eval(tokens)
    got = np.array(theirs.scores[: len(tokens)])
    theirs.close()
    (tmp_path / "hf").mkdir()
    expected = logits_of(transformers_model(config, weights, tmp_path / "hf"), torch.tensor([tokens]))[0].numpy()
    model = ModelConfig.from_hf(config)
    # Both compute in float32 and sum in other orders; a weight or a key in f16 anywhere would cost 2**-11.
    bound = 2**-16 * np.sqrt(model.hidden_size) * expected.std()
    if model.activation == "gelu_tanh":
        # llama.cpp's is a table of f16: argument and value are each off by up to 2**-12, in the net of every layer, and
        # the worst of 20 480 logits is about 4 deviations out.
        bound = max(bound, 4 * 2**-12 * (2 * model.num_layers) ** 0.5 * expected.std())
    assert np.abs(got - expected).max() < bound
    assert np.abs(got - np.roll(expected, 1, axis=0)).max() > 10 * bound  # the bound distinguishes positions


def test_experts_are_stacked_in_order(tmp_path):
    source = small_source("qwen3moe")
    write_gguf(source, tmp_path / "x.gguf", name="x")
    stack = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "x.gguf").tensors}[
        "blk.1.ffn_down_exps.weight"
    ]
    names = [f"model.layers.1.mlp.experts.{expert}.down_proj.weight" for expert in range(8)]
    assert np.array_equal(stack, [dequantize(source.read(name)) for name in names])


def test_experts_of_unlike_formats(tmp_path):
    odd = "model.layers.1.mlp.experts.3.up_proj.weight"
    with pytest.raises(InputError, match=r"^blk\.1\.ffn_up_exps\.weight stacks tensors of f16, f32, and GGUF gives"):
        write_gguf(small_source("qwen3moe", {odd: "f16"}), tmp_path / "x.gguf", name="x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kind, changes, words",
    [
        pytest.param(
            "deepseek2",
            {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1},
            "within 1 of 2 groups, which llama.cpp does otherwise",
            id="groups",
        ),
        pytest.param("qwen3moe", {"norm_topk_prob": False}, "llama.cpp knows qwen3moe with True alone", id="norm"),
    ],
)
def test_experts_that_llama_cpp_chooses_otherwise(tmp_path, kind, changes, words):
    with pytest.raises(InputError, match=words):
        write_gguf(small_source(kind, **changes), tmp_path / "x.gguf", name="x")


@pytest.mark.parametrize(
    "kind, changes",
    [
        pytest.param("mistral", {"layer_types": ["sliding_attention", "full_attention"]}, id="in some layers"),
        pytest.param(
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0},
            id="of qwen2",
        ),
    ],
)
def test_windows_that_gguf_has_no_word_for(tmp_path, kind, changes):
    with pytest.raises(InputError, match=r"attend to a window of (24|16) tokens, which GGUF cannot say"):
        write_gguf(small_source(kind, **changes), tmp_path / "x.gguf", name="x")


LONGROPE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


@pytest.mark.parametrize(
    "kind, changes, words",
    [
        pytest.param("opt", {}, "no place for OPTForCausalLM", id="a family that llama.cpp lacks"),
        pytest.param("llama", {"hidden_act": "relu"}, "the activation is relu, and llama.cpp knows llama", id="relu"),
        pytest.param("gpt2", {"activation_function": "relu"}, "knows gpt2 with gelu_tanh alone", id="relu in GPT-2"),
        pytest.param("gemma2", {"query_pre_attn_scalar": 40}, "scores are scaled by 0.158", id="another scale"),
        pytest.param("gemma2", {"attn_logit_softcapping": None}, "not capped", id="no cap"),
        pytest.param("gemma3", {"final_logit_softcapping": 3.0}, "are capped", id="a cap"),
        pytest.param("gemma2", {"tie_word_embeddings": False}, "a weight of its own", id="an untied head"),
        pytest.param(
            "phi3", {"rope_scaling": LONGROPE}, "longrope is not written to GGUF if its factors change", id="longrope"
        ),
    ],
)
def test_models_that_llama_cpp_computes_differently_are_refused(tmp_path, kind, changes, words):
    with pytest.raises(InputError, match=words):
        write_gguf(small_source(kind, **changes), tmp_path / "x.gguf", name="x")
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_each_head_and_the_largest_gemmas_scale_come_back(tmp_path):
    for kind, changes in (
        ("phi3", {"partial_rotary_factor": 0.5}),
        ("gemma2", {"num_hidden_layers": 46, "query_pre_attn_scalar": 16}),
    ):
        source = small_source(kind, **changes)
        write_gguf(source, tmp_path / f"{kind}.gguf", name="x")
        assert ModelConfig.of(GGUFSource(tmp_path / f"{kind}.gguf")) == ModelConfig.of(source)


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("expert_gating_func", 3, "by function 3 in 1 groups"),
        ("expert_group_count", 3, "by function 1 in 3 groups"),
        ("expert_count", 7, r"ffn_gate_inp.weight' has shape \(6, 64\), its metadata says \(7, 64\)"),
    ],
)
def test_deepseek_files_that_are_not_read(tmp_path, key, value, words):
    write_gguf(small_source("deepseek2"), tmp_path / "x.gguf", name="x", metadata={f"deepseek2.{key}": value})
    with pytest.raises(InputError, match=words):
        GGUFSource(tmp_path / "x.gguf")


def test_a_file_without_causal_attention(tmp_path):
    """As llama.cpp's converter marks embedding models."""
    causal, other = tmp_path / "causal.gguf", tmp_path / "other.gguf"
    for path, value in ((causal, True), (other, False)):
        write_gguf(small_source("qwen2"), path, name="x", metadata={"qwen2.attention.causal": value})
    assert ModelConfig.of(GGUFSource(causal)) == ModelConfig.of(small_source("qwen2"))
    with pytest.raises(InputError, match=r"other.gguf: is_causal is False: attention is not causal"):
        GGUFSource(other)
