"""A model whose linears have biases, from Hugging Face's files to logits, and through GGUF to llama.cpp's."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.close import assert_close
from support.gguf_parts import GgufParts
from support.llama_logits import TOKENS as LLAMA_TOKENS
from support.llama_logits import llama_cpp_logits
from support.transformers_llama import transformers_logits

from qbench.runtime import load_model
from qbench.sources import open_source
from quant.errors import InputError
from quant.formats import dequantize
from quant.recipes import get_recipe

CONFIG = small_config(attention_bias=True, mlp_bias=True)
WEIGHTS = random_weights(CONFIG)
TOKENS = torch.randint(CONFIG["vocab_size"], (1, 60), generator=torch.Generator().manual_seed(1))
LOGITS_ATOL = 1e-4  # the project's promise for float32 logits of order 1


@pytest.fixture(params=["model", "model.gguf"], ids=["directory", "GGUF"])
def written(request, tmp_path):
    return write_artifact(ArraySource(CONFIG, WEIGHTS), tmp_path / request.param)


def test_logits_equal_transformers(written):
    source = open_source(str(written))
    assert {name: source.config[name] for name in ("attention_bias", "mlp_bias")} == dict.fromkeys(
        ("attention_bias", "mlp_bias"), True
    )
    assert_close(load_model(source)(TOKENS), transformers_logits(CONFIG, WEIGHTS, TOKENS), atol=LOGITS_ATOL)


def test_a_quantized_directory_keeps_its_biases(tmp_path):
    path = write_artifact(ArraySource(CONFIG, WEIGHTS), tmp_path / "w8", recipe=get_recipe("rtn-w8"))
    source = open_source(str(path))
    name = "model.layers.1.self_attn.k_proj"
    assert (source.tensors[f"{name}.weight"].format, source.tensors[f"{name}.bias"].format) == ("w8", "bf16")
    assert_close(dequantize(source.read(f"{name}.bias")), WEIGHTS[f"{name}.bias"], rtol=2**-8)
    assert load_model(source)(TOKENS).isfinite().all()


def test_llama_cpp_gives_the_same_logits(tmp_path):
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    path = write_artifact(ArraySource(CONFIG, WEIGHTS), tmp_path / "model.gguf")
    theirs = llama_cpp.Llama(str(path), n_ctx=64, logits_all=True, verbose=False, n_threads=1)
    theirs.eval(TOKENS[0].tolist())
    logits = np.array(theirs.scores[: TOKENS.shape[1]])
    theirs.close()
    # llama.cpp keeps keys and values in float16: half an ulp of 2**-11 in each, on logits of order 1.
    assert_close(logits, load_model(open_source(str(path)))(TOKENS)[0], atol=2**-8)


LOST = {
    "llama without an output bias": ("llama", ("o_proj", "attn_output")),
    "llama with an output bias alone": ("llama", ("q_proj", "k_proj", "v_proj", "attn_q", "attn_k", "attn_v")),
    "llama without biases of the values and of down": ("llama", ("v_proj", "down_proj", "attn_v", "ffn_down")),
    "mixtral without an output bias": ("mixtral", ("o_proj", "attn_output")),
    "qwen2 without a bias of the keys": ("qwen2", ("k_proj", "attn_k")),
    "qwen2 without any": ("qwen2", ("q_proj", "k_proj", "v_proj", "attn_q", "attn_k", "attn_v")),
}


def without_biases(kind: str, lost: tuple[str, ...], out: Path) -> Path:
    """A directory or a GGUF file of random weights that lacks these biases in every layer."""
    flags = {"llama": {"attention_bias": True, "mlp_bias": True}, "mixtral": {"attention_bias": True}}
    config = small_config(kind, **flags.get(kind, {}))
    path = write_artifact(ArraySource(config, random_weights(config)), out)
    ends = tuple(f".{name}.bias" for name in lost)
    if out.suffix == ".gguf":
        parts = GgufParts.read(path)
        parts.drop(ends)
        path.write_bytes(parts.bytes())
    else:
        stored = load_file(path / "model.safetensors")
        save_file(
            {name: tensor for name, tensor in stored.items() if not name.endswith(ends)},
            path / "model.safetensors",
            metadata={"format": "pt"},
        )
    return path


@pytest.mark.parametrize("kind, lost", LOST.values(), ids=LOST)
def test_gguf_biases_that_are_absent_are_zeros_as_in_llama_cpp(tmp_path, kind, lost, caplog):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    path = without_biases(kind, lost, tmp_path / "model.gguf")
    source = open_source(str(path))
    assert "missing: taken as zeros" in caplog.text and len(caplog.records) == 1
    again = write_artifact(source, tmp_path / "again.gguf")
    got = load_model(source)(torch.tensor([LLAMA_TOKENS]))[0]
    for file in (path, again):
        expected = torch.from_numpy(llama_cpp_logits(file))
        assert_close(got, expected, atol=float(2**-16 * source.config["hidden_size"] ** 0.5 * expected.std()))


@pytest.mark.parametrize("kind, lost", [row for name, row in LOST.items() if "mixtral" not in name])
def test_biases_that_a_directory_lacks_are_zeros_as_in_transformers(tmp_path, kind, lost):
    transformers = pytest.importorskip("transformers")
    path = without_biases(kind, lost, tmp_path / "model")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.inference_mode():
        assert_close(load_model(open_source(str(path)))(TOKENS), theirs(TOKENS).logits, atol=LOGITS_ATOL)


def test_biases_that_a_config_denies_are_refused_with_its_key(tmp_path):
    """transformers drops them with a warning, so that the model computes something else."""
    path = write_artifact(ArraySource(CONFIG, WEIGHTS), tmp_path / "model")
    config = json.loads((path / "config.json").read_text()) | {"attention_bias": False}
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"_proj.bias' is none of .* With attention_bias: true in config.json"):
        open_source(str(path))


def test_an_output_bias_that_llama_cpp_has_no_place_for_is_refused(tmp_path):
    config = small_config("qwen3", attention_bias=True)
    with pytest.raises(InputError, match="qwen3 has no bias of the attention's output"):
        write_artifact(ArraySource(config, random_weights(config)), tmp_path / "model.gguf")
