"""From the command line: every dense family quantized, with calibration and without, and read again."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.byte_tokenizer import trained_byte_level
from support.close import assert_close

from qbench.cli.main import main
from qbench.runtime import load_model
from qbench.sources import open_source

TEXT = "The quick brown fox jumps over the lazy dog; 12345 foxes come again, and spaces   stay.\n"
TOKENS = torch.randint(300, (1, 60), generator=torch.Generator().manual_seed(1))
# Rows that groups of 128 fill, in each family's own words
WIDE = {"hidden_size": 128, "intermediate_size": 128, "head_dim": 32, "vocab_size": 300}
SIZES = {
    "mistral": WIDE,
    "gemma2": {**WIDE, "query_pre_attn_scalar": 32},
    "gemma3": {**WIDE, "query_pre_attn_scalar": 32, "num_hidden_layers": 6},
    "phi3": {key: size for key, size in WIDE.items() if key != "head_dim"},
    "gpt2": {"n_embd": 128, "n_inner": 128, "vocab_size": 300},
    "opt": {"hidden_size": 128, "word_embed_proj_dim": 128, "ffn_dim": 128, "vocab_size": 300},
    "bloom": {"hidden_size": 128, "n_head": 4, "vocab_size": 300},
}


@pytest.fixture(scope="module", params=SIZES)
def model(request, tmp_path_factory):
    """Its kind and its directory."""
    config = small_config(request.param, **SIZES[request.param])
    source = ArraySource(config, random_weights(config), tokenizer=trained_byte_level([TEXT]))
    return request.param, write_artifact(source, tmp_path_factory.mktemp(request.param) / "model")


def relative_error(path, exact: torch.Tensor) -> float:
    logits = load_model(open_source(str(path)), impl="reference")(TOKENS)
    return float((logits - exact).pow(2).mean().sqrt() / exact.std())


@pytest.mark.parametrize("recipe, out, bits", [("rtn-w8", "w8", 8), ("gptq-w4g128", "w4", 4), ("q8_0", "q8.gguf", 8)])
def test_quantized_models_stay_near(model, tmp_path, capsys, recipe, out, bits):
    kind, path = model
    (tmp_path / "text.txt").write_text(TEXT * 100)
    text = ["--calibration", str(tmp_path / "text.txt"), "--samples", "8", "--seq-len", "64"]
    options = text if recipe.startswith("gptq") else []
    code = main(["quantize", str(path), "--recipe", recipe, "-o", str(tmp_path / out), *options])
    if kind == "opt" and out.endswith(".gguf"):
        assert code == 2 and not (tmp_path / out).exists()
        assert (
            capsys.readouterr()
            .err.splitlines()[-1]
            .endswith("GGUF has no place for OPTForCausalLM; write a Hugging Face directory")
        )
        return
    assert code == 0
    source = open_source(str(path))
    error = relative_error(tmp_path / out, load_model(source)(TOKENS))
    # A weight is off by a uniform half step of 2**(bits - 1) in absmax, about 3 deviations; 9 products in each layer,
    # and as many for embedding and head, whose errors add as a walk and in Gemma's layers are normed up once more.
    num_products = 9 * (source.config.get("num_hidden_layers", 2) + 1) * (2 if kind.startswith("gemma") else 1)
    assert_close(error, 0, atol=3 / 2 ** (bits - 1) / 12**0.5 * num_products**0.5)
    assert error > 2**-12, "nothing was quantized"


@pytest.mark.parametrize("recipe", ["smoothquant-w8a8-o3", "gptq-w4g128-act", "llm-int8-outliers"])
@pytest.mark.parametrize("kind", ["phi3", "gpt2", "bloom"])
def test_members_of_a_stack_share_common_parts(tmp_path, kind, recipe):
    """Input scales, orders of features and outliers are those of the input that all of them read."""
    config = small_config(kind, **SIZES[kind])
    source = ArraySource(config, random_weights(config), tokenizer=trained_byte_level([TEXT]))
    path = write_artifact(source, tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT * 100)
    text = ["--calibration", str(tmp_path / "text.txt"), "--samples", "8", "--seq-len", "64"]
    assert main(["quantize", str(path), "--recipe", recipe, "-o", str(tmp_path / "out"), *text]) == 0


@pytest.mark.parametrize("kind", ["phi3", "gpt2", "bloom"])
def test_a_stack_of_one_scale_for_each_member_is_refused(tmp_path, capsys, kind):
    config = small_config(kind, **SIZES[kind])
    path = write_artifact(ArraySource(config, random_weights(config)), tmp_path / "model")
    assert main(["quantize", str(path), "--recipe", "rtn-w8a8-tensor", "-o", str(tmp_path / "out")]) == 2
    assert "3 tensors of w8a8-wtensor-atensor, each with a scale of its own" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_stack_of_unlike_formats_is_refused(tmp_path, capsys):
    config = small_config("phi3")
    path = write_artifact(ArraySource(config, random_weights(config)), tmp_path / "model")
    recipe = tmp_path / "odd.yaml"
    recipe.write_text("base: rtn-w8\nrules:\n  - {match: '*.v_proj.weight', format: w4g32}\n")
    assert main(["quantize", str(path), "--recipe", str(recipe), "-o", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "qkv_proj.weight holds 3 tensors of w4g32, w8, and a checkpoint gives it one format" in message
    assert not (tmp_path / "out").exists()
