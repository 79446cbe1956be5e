"""A rotated model is the same function: here, in transformers and in llama.cpp. Others are refused."""

import numpy as np
import pytest
import torch
from support.architectures import EVERY_EXPERT, KINDS, random_weights, small_config
from support.array_source import ArraySource
from support.byte_tokenizer import trained_byte_level
from support.llama_logits import TOKENS, llama_cpp_logits
from support.logit_bounds import float32_bound

from qbench.runtime import load_model
from quant.artifacts import make_artifact_job, write_artifact
from quant.artifacts.gguf_writer import write_gguf
from quant.errors import InputError
from quant.formats import dequantize
from quant.job import make_job
from quant.models import EMBEDDING, HEAD
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe
from quant.rotation import RotatedSource

REFUSED = {
    "gemma2": "model.layers.0.self_attn.output_norm.weight works on its single channels",
    "gemma3": "model.layers.0.self_attn.output_norm.weight works on its single channels",
    "gpt2": "GPT2LMHeadModel has LayerNorms",
    "opt": "OPTForCausalLM has LayerNorms",
    "bloom": "BloomForCausalLM has LayerNorms",
}
ROTATED = [kind for kind in KINDS if kind not in REFUSED]


def source_of(kind: str, tokenizer=None, **changes) -> ArraySource:
    config = small_config(kind, **EVERY_EXPERT.get(kind, {}), **changes)
    return ArraySource(config, random_weights(config), tokenizer=tokenizer)


def logits_of(source) -> torch.Tensor:
    return load_model(source, impl="reference")(torch.tensor([TOKENS]))


def same_logits(source, rotated) -> None:
    expected = logits_of(source)
    bound = float32_bound(load_model(source, impl="reference").config, expected)
    assert (logits_of(rotated) - expected).abs().max() < bound


@pytest.mark.parametrize("kind", ROTATED)
def test_logits_match_the_original(kind):
    source = source_of(kind)
    rotated = RotatedSource(source)
    same_logits(source, rotated)
    for name in source.tensors:
        weight = dequantize(rotated.read(name))
        assert weight.shape == rotated.tensors[name].shape
        if name.endswith(("input_layernorm.weight", "model.norm.weight")):
            assert (weight == 1).all()
        elif "_proj.weight" in name:
            assert not np.allclose(weight, dequantize(source.read(name)), atol=0.01), name


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_word_embeddings": True},
        {"attention_bias": True, "mlp_bias": True},
        {"hidden_size": 72, "head_dim": 20},
    ],
    ids=["tied", "biases", "no power of two"],
)
def test_tied_heads_biases_and_odd_sizes(changes):
    source = source_of("llama", **changes)
    same_logits(source, RotatedSource(source))


def test_a_tied_head_gets_a_separate_tensor():
    source = source_of("llama", tie_word_embeddings=True)
    rotated = RotatedSource(source)
    assert rotated.tensors[HEAD].shape == source.tensors[EMBEDDING].shape
    assert rotated.config["tie_word_embeddings"] is False
    assert not np.array_equal(dequantize(rotated.read(HEAD)), dequantize(rotated.read(EMBEDDING)))


def test_a_linear_by_the_textbook():
    """W' = W diag(g) Q and W' = Q^T W, with the matrix written out."""
    source = source_of("llama")
    rotated = RotatedSource(source)
    embedding, turned = (dequantize(each.read(EMBEDDING)).astype(np.float64) for each in (source, rotated))
    q = np.linalg.lstsq(embedding, turned, rcond=None)[0]  # E' = E Q
    layer = "model.layers.1"
    norm = dequantize(source.read(f"{layer}.post_attention_layernorm.weight"))
    up, down = (f"{layer}.mlp.{name}_proj.weight" for name in ("up", "down"))
    assert np.abs(dequantize(rotated.read(up)) - dequantize(source.read(up)) * norm @ q).max() < 1e-5
    assert np.abs(dequantize(rotated.read(down)) - q.T @ dequantize(source.read(down))).max() < 1e-5


@pytest.mark.parametrize("kind", REFUSED)
def test_models_that_a_rotation_changes_are_refused(kind):
    with pytest.raises(InputError, match=REFUSED[kind]) as caught:
        make_job(source_of(kind), get_recipe("rot-rtn-w8"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "deepseek2"])
def test_transformers_computes_the_same(tmp_path, kind):
    pytest.importorskip("transformers")
    from support.transformers_model import logits_of as their_logits
    from support.transformers_model import transformers_model

    source = source_of(kind)
    rotated = RotatedSource(source)
    weights = {name: dequantize(rotated.read(name)) for name in rotated.tensors}
    theirs = their_logits(transformers_model(rotated.config, weights, tmp_path), torch.tensor([TOKENS]))
    expected = logits_of(source)
    assert (theirs - expected).abs().max() < 2**-14 * np.sqrt(64) * expected.std()


def test_transformers_refuses_the_directory(tmp_path):
    transformers = pytest.importorskip("transformers")
    write_artifact(QuantizedSource(make_artifact_job(source_of("llama"), get_recipe("rot-rtn-w4a4"), tmp_path / "x")))
    with pytest.raises(ValueError, match="rotated_llama"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x")


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_llama_cpp_computes_the_same(tmp_path, kind):
    pytest.importorskip("llama_cpp")
    tokenizer = trained_byte_level(["The quick brown fox jumps over the lazy dog."])
    source = source_of(kind, tokenizer, vocab_size=320)
    write_gguf(RotatedSource(source), tmp_path / "x.gguf", name="x")
    expected = logits_of(source)[0].numpy()
    assert np.abs(llama_cpp_logits(tmp_path / "x.gguf") - expected).max() < 2**-16 * np.sqrt(64) * expected.std()
