import numpy as np
import pytest
from support.array_source import ArraySource
from support.memory_source import MemorySource

from quant import quantize
from quant.errors import InputError
from quant.formats import get_format
from quant.job import make_job
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe
from quant.recipes.policies import Linears
from quant.recipes.recipe import Recipe
from quant.source import TensorInfo

UP = "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize("recipe", ["bf16", "rtn-w8", "rtn-w4g128", "rtn-w8a8", "llm-int8", "q8_0", "q4_k_m"])
def test_tensors_predict_the_result_of_read(recipe):
    source = QuantizedSource(make_job(MemorySource(hidden_size=256, head_dim=64), get_recipe(recipe)))
    assert list(source.tensors) == list(source.job.source.tensors)
    for name, info in source.tensors.items():
        qtensor = source.read(name)
        assert (qtensor.format, qtensor.shape, qtensor.size_bytes) == (info.format, info.shape, info.size_bytes)


@pytest.mark.parametrize("recipe", ["rtn-w8", "rtn-w4g128", "rtn-w8a8-tensor", "llm-int8", "q8_0"])
def test_chunks_of_rows_change_nothing(monkeypatch, recipe):
    source = QuantizedSource(make_job(MemorySource(), get_recipe(recipe)))
    whole = source.read(UP)
    monkeypatch.setattr(quantize, "CHUNK_WEIGHTS", 3 * 128)  # 256 rows in chunks of three: the last one is short
    chunked = source.read(UP)
    assert chunked.shape == whole.shape
    assert all(np.array_equal(chunked.parts[part], array) for part, array in whole.parts.items())
    expected = get_format(whole.format).quantize_ref(source.job.source.weights[UP])
    assert all(np.array_equal(expected.parts[part], array) for part, array in whole.parts.items())


@pytest.mark.parametrize("recipe, limit", [("rtn-w4g128", "491280"), ("q4_0", "524032"), ("q8_0", "8319008")])
def test_weights_beyond_a_format_are_refused_with_their_tensor(recipe, limit):
    """Their scale would be beyond float16 and become its largest number, which is that of far smaller weights.

    llama-quantize writes an infinite scale and refuses the file: "quantized data validation failed".
    """
    source = MemorySource()
    source.weights[UP][3, 5] = 1e10
    with pytest.raises(
        InputError, match=f"tensor {UP}: .* holds magnitudes up to {limit}, got 1e[+]10; give this tensor"
    ):
        QuantizedSource(make_job(source, get_recipe(recipe))).read(UP)


def test_equal_format_passes_through():
    once = QuantizedSource(make_job(MemorySource(), get_recipe("q4_0")))
    once.read = lambda name, read=once.read, kept={}: kept.setdefault(name, read(name))
    twice = QuantizedSource(make_job(once, get_recipe("q4_0")))
    assert all(twice.read(name) is once.read(name) for name in once.tensors)


def test_shared_tensors_pass_through():
    fmt = get_format("w4g32")
    q = np.random.default_rng(0).integers(-8, 8, (256, 128)).astype(np.int8)
    g_idx = np.arange(128, dtype=np.int32) % 4
    ordered = fmt.pack(q, np.full((256, 4), 0.01, np.float16), g_idx=g_idx)
    once = MemorySource()
    weights = {name: ordered if name == UP else once.read(name) for name in once.tensors}
    twice = QuantizedSource(make_job(ArraySource(once.config, weights), Recipe("w4", "hf", "rtn", Linears("w4g32"))))
    assert np.array_equal(twice.read(UP).shared["g_idx"], g_idx)
    assert twice.tensors[UP] == TensorInfo.of(ordered) and twice.tensors[UP].has_shared("g_idx")


def test_quantized_weights_are_quantized_again_from_their_values():
    once = QuantizedSource(make_job(MemorySource(), get_recipe("q8_0")))
    twice = QuantizedSource(make_job(once, get_recipe("rtn-w4g128")))
    weight = get_format("q8_0").dequantize_ref(once.read(UP))
    expected = get_format("w4g128").quantize_ref(weight)
    assert np.array_equal(twice.read(UP).parts["weight_packed"], expected.parts["weight_packed"])


def test_nothing_is_kept():
    source = QuantizedSource(make_job(MemorySource(), get_recipe("q8_0")))
    assert source.read(UP) is not source.read(UP)


def test_fingerprint_follows_source_and_plan():
    recipes = ("bf16", "rtn-w8", "q8_0")
    prints = {QuantizedSource(make_job(MemorySource(), get_recipe(recipe))).fingerprint() for recipe in recipes}
    assert len(prints) == 3
    assert QuantizedSource(make_job(MemorySource(), get_recipe("bf16"))).fingerprint() in prints


def test_rows_that_no_format_holds():
    with pytest.raises(InputError, match="w4g128 needs rows of a multiple of 128"):
        QuantizedSource(make_job(MemorySource(hidden_size=96, head_dim=24), get_recipe("rtn-w4g128")))


def test_config_forgets_the_sources_own_quantization():
    source = MemorySource()
    source.config["quantization_config"] = {"quant_method": "compressed-tensors"}
    assert "quantization_config" not in QuantizedSource(make_job(source, get_recipe("bf16"))).config
