"""A model whose linears have biases, from Hugging Face's files to logits, and through GGUF to llama.cpp's."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.close import assert_close
from support.transformers_llama import transformers_logits

from qbench.runtime import load_model
from qbench.sources import open_source
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
