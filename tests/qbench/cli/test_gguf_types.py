"""A GGUF file with a tensor of every type that C++ does not write: every command takes it, with llama.cpp's logits."""

import json

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from support.architectures import random_weights, small_config
from support.block_weights import NUMPY_CODECS, WITHOUT_KERNELS, random_blocks
from support.close import assert_close
from support.llama_converter import convert
from support.llama_logits import TOKENS, llama_cpp_logits

from qbench.runtime import load_model
from qbench.sources import open_source
from quant.models import ModelConfig

# The gguf package knows no Q2_0; NVFP4 and Q1_0 are younger than its oldest version that is supported.
KINDS = [
    GGMLQuantizationType[name.upper()]
    for name in (*WITHOUT_KERNELS, *NUMPY_CODECS)
    if name.upper() in GGMLQuantizationType.__members__
]
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}


def kind_of(name: str, kind: GGMLQuantizationType) -> GGMLQuantizationType:
    """Another type for each matrix of the decoder, in turn."""
    layer, _, word = name.removeprefix("blk.").removesuffix(".weight").partition(".")
    words = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return KINDS[(len(words) * int(layer) + words.index(word)) % len(KINDS)] if word in words else kind


def encode(weight: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Random bytes of the types under test"""
    if kind in KINDS:
        return random_blocks(kind.name.lower(), *weight.shape)
    return gguf.quants.quantize(weight, kind)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    config = small_config(**SIZES)
    file = tmp_path_factory.mktemp("types") / "types.gguf"
    return convert(config, random_weights(config), file, GGMLQuantizationType.F32, encode=encode, kind_of=kind_of)


def test_logits_match_llama_cpp(path):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    source = open_source(str(path))
    assert {GGMLQuantizationType[info.format.upper()] for info in source.tensors.values()} >= set(KINDS)
    expected = llama_cpp_logits(path)
    got = load_model(source)(torch.tensor([TOKENS]))[0]
    error = (got - torch.from_numpy(expected)).pow(2).mean().sqrt()
    # llama.cpp rounds the inputs of every product to int8, 256 values under one scale. The step is the largest value
    # over 127, and the largest is about 3 deviations. There are 7 products per layer, whose errors add as a walk.
    step = 3 / 127 / 12**0.5
    assert_close(error, 0, atol=2 * step * (7 * ModelConfig.of(source).num_layers) ** 0.5 * expected.std())
    assert error > 2**-20 * expected.std(), "nothing was rounded"


def test_commands_take_it(qbench, path, tmp_path):
    inspected = qbench("inspect", path).out
    assert all(kind.name.lower() in inspected for kind in KINDS)
    examined = json.loads(qbench("doctor", path, "--json").out)
    assert [found for found in examined["findings"] if found["check"] == "finite"] == []
    made = tmp_path / "q8.gguf"
    assert qbench("quantize", path, "--recipe", "q8_0", "-o", made).status == 0
    tokens = torch.tensor([TOKENS])
    with torch.no_grad():
        original, converted = (load_model(open_source(str(file)), impl="reference")(tokens) for file in (path, made))
    assert_close(converted, original, atol=0.1 * float(original.std()))


def test_a_recipe_of_such_a_type_is_one_line(qbench, tmp_path):
    (tmp_path / "r.yaml").write_text("container: gguf\ndefault: iq1_s\n")
    made = tmp_path / "x.gguf"
    qbench("quantize", "ref:llama", "--recipe", tmp_path / "r.yaml", "-o", made).fails_with("iq1_s is read but not")
    assert not made.exists()
