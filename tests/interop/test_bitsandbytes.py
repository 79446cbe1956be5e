"""LLM.int8() directories, from here to transformers' bitsandbytes and back: the same tokens, the same perplexity."""

import pytest
import torch
from support.perplexity import assert_same_model

from quant.artifacts import HFSource

pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed; `make test-interop` does")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def load(path, **settings):
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, device_map="cpu", **settings)


def logits_of(model):
    return lambda tokens: model(tokens).logits


def test_they_load_ours(write_model, windows):
    path = write_model("llm-int8", "bitsandbytes")
    assert_same_model(path, logits_of(load(path)), windows)


def test_we_load_theirs(tmp_path, reference_dir, windows):
    config = transformers.BitsAndBytesConfig(load_in_8bit=True)
    load(reference_dir, quantization_config=config).save_pretrained(tmp_path)
    assert_same_model(tmp_path, logits_of(load(tmp_path)), windows)
    assert {info.format for name, info in HFSource(tmp_path).tensors.items() if "_proj" in name} == {"llm-int8"}
