import hashlib

import numpy as np
import pytest
from support.close import assert_close

from qbench.sources import rand
from qbench.sources.rand import STD, RandomSource, random_bf16
from qbench.sources.shapes import SHAPES
from quant.errors import InputError
from quant.formats import dequantize

# Published sizes: https://huggingface.co, model cards. A tied head counts once.
PARAMS = {
    "smollm2-135m": 134_515_008,
    "tinyllama-1.1b": 1_100_048_384,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-4b": 4_022_468_096,
    "qwen3-30b-a3b": 30_532_122_624,
    "deepseek-v2-lite": 15_706_484_224,
}


@pytest.mark.parametrize("shape", PARAMS)
def test_shapes_have_the_published_number_of_weights(shape):
    tensors = RandomSource(f"rand:{shape}").tensors.values()
    assert sum(int(np.prod(info.shape)) for info in tensors) == PARAMS[shape]


def test_weights_are_the_same_everywhere_and_in_any_order():
    names = list(RandomSource("rand:tiny").tensors)
    forwards, backwards = RandomSource("rand:tiny"), RandomSource("rand:tiny")
    one = {name: forwards.read(name).parts["blocks"].tobytes() for name in names}
    other = {name: backwards.read(name).parts["blocks"].tobytes() for name in reversed(names)}
    assert one == other
    matrices = [raw for name, raw in one.items() if not name.endswith("norm.weight")]
    assert len(set(matrices)) == len(matrices)
    # The bytes themselves: another NumPy, another machine must give these.
    assert (
        hashlib.sha256(one[names[0]]).hexdigest() == "4856d67475809b184c7627d493f7ced86575ab69eb0c4966e8be4500b79e0cbd"
    )


def test_weights_look_normal():
    num_weights = 1 << 20
    bits = random_bf16(num_weights, np.random.SFC64(1)).astype(np.uint32) << 16
    weights = bits.view(np.float32).astype(np.float64) / STD
    error = num_weights**-0.5
    assert_close(weights.mean(), 0, atol=4 * error)
    assert_close((weights**2).mean(), 1, atol=4 * 2**0.5 * error + 2**-8)  # bf16 rounds within 2**-9
    assert_close((weights**4).mean(), 3, atol=4 * 96**0.5 * error + 2**-6)  # the tail ends at 4.2 deviations


@pytest.mark.parametrize("num_weights", [1, 3, 4, 63, 131, 1001])
def test_chunks_change_nothing(monkeypatch, num_weights):
    whole = random_bf16(num_weights, np.random.SFC64(5))
    monkeypatch.setattr(rand, "CHUNK_WORDS", 8)
    assert np.array_equal(random_bf16(num_weights, np.random.SFC64(5)), whole) and len(whole) == num_weights


def test_norms_are_ones():
    source = RandomSource("rand:tiny")
    assert (dequantize(source.read("model.norm.weight")) == 1).all()


def test_biases_are_zeros():
    source = RandomSource("rand:qwen2.5-0.5b")
    assert (dequantize(source.read("model.layers.3.self_attn.q_proj.bias")) == 0).all()


def test_experts_differ():
    source = RandomSource("rand:tiny-moe")
    names = [f"model.layers.0.mlp.experts.{expert}.up_proj.weight" for expert in range(8)]
    assert len({source.read(name).parts["blocks"].tobytes() for name in names}) == 8


def test_unknown_shape_lists_the_known():
    with pytest.raises(InputError, match="'gpt-5' is unknown; known: tiny, smollm2-135m"):
        RandomSource("rand:gpt-5")


def test_fingerprints_differ():
    assert len({RandomSource(f"rand:{shape}").fingerprint() for shape in SHAPES}) == len(SHAPES)
