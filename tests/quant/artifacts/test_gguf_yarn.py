"""YaRN through GGUF: back as it was, and the same function in llama.cpp as in transformers."""

import numpy as np
import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from quant.artifacts.gguf_keys import KeyReader
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_rope import yarn_scaling
from quant.artifacts.gguf_writer import write_gguf
from quant.errors import InputError
from quant.models import ModelConfig

BASE = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}
CASES = {
    "qwen2": ("qwen2", {}),
    "llama, given magnitude": ("llama", {"attention_factor": 1.75}),
    "qwen3, other band": ("qwen3", {"beta_fast": 8.0, "beta_slow": 2.0}),
    "deepseek2": ("deepseek2", {"mscale": 0.707, "mscale_all_dim": 0.707}),
}
every_case = pytest.mark.parametrize("kind, yarn", [pytest.param(*case, id=name) for name, case in CASES.items()])


@every_case
def test_config_comes_back(tmp_path, kind, yarn):
    config = small_config(kind, rope_scaling=BASE | yarn)
    source = ArraySource(config, random_weights(config))
    write_gguf(source, tmp_path / "x.gguf", name="x")
    got, want = (ModelConfig.of(each).rope for each in (GGUFSource(tmp_path / "x.gguf"), source))
    assert got.rotation_scale == pytest.approx(want.rotation_scale, rel=2**-22)  # kept as float32
    assert got.mscale_all_dim == want.mscale_all_dim
    assert np.array_equal(got.frequency_divisors(64), want.frequency_divisors(64))


@every_case
def test_llama_cpp_computes_transformers_logits(tmp_path, kind, yarn, byte_level_tokenizer):
    llama_cpp = pytest.importorskip("llama_cpp")
    pytest.importorskip("transformers")
    import torch
    from support.transformers_model import logits_of, transformers_model

    config = small_config(kind, vocab_size=320, rope_scaling=BASE | yarn)
    weights = random_weights(config)
    write_gguf(ArraySource(config, weights, tokenizer=byte_level_tokenizer), tmp_path / "x.gguf", name="x")
    tokens = list(range(5, 69))
    f32 = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32}
    # llama.cpp prefers its caller's band to the file's, and the Python binding always has one: it gets the file's.
    rope = ModelConfig.of(GGUFSource(tmp_path / "x.gguf")).rope
    band = {"yarn_beta_fast": rope.beta_fast, "yarn_beta_slow": rope.beta_slow}
    threads = {"n_threads": 1, "n_threads_batch": 1}
    theirs = llama_cpp.Llama(
        str(tmp_path / "x.gguf"), verbose=False, n_ctx=256, logits_all=True, **threads, **f32, **band
    )
    theirs.eval(tokens)
    got = np.array(theirs.scores[: len(tokens)])
    theirs.close()
    (tmp_path / "hf").mkdir()
    expected = logits_of(transformers_model(config, weights, tmp_path / "hf"), torch.tensor([tokens]))[0].numpy()
    # Both compute in float32 and sum in other orders.
    assert np.abs(got - expected).max() < 2**-16 * np.sqrt(config["hidden_size"]) * expected.std()


@pytest.mark.parametrize("yarn", [{}, {"mscale": 1.0, "mscale_all_dim": 0.5}], ids=["none", "unlike"])
def test_magnitudes_that_llama_cpp_does_not_compute(tmp_path, yarn):
    config = small_config("deepseek2", rope_scaling=BASE | yarn)
    with pytest.raises(InputError, match="equal mscales alone; write a Hugging Face directory"):
        write_gguf(ArraySource(config, random_weights(config)), tmp_path / "x.gguf", name="x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given, original", [({}, 128), ({"rope.scaling.original_context_length": 32}, 32)], ids=str)
def test_the_trained_context_is_the_original_one_unless_a_file_names_another(given, original):
    """As in llama.cpp."""
    keys = {"context_length": 128, "rope.scaling.factor": 4.0, **given}
    metadata = {f"llama.{key}": value for key, value in keys.items()}
    expected = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": original}
    assert yarn_scaling(KeyReader(metadata, "llama", "x.gguf"), False) == expected
