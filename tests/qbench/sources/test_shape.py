import pytest

from qbench.sources.large_shapes import LARGE_SHAPES
from qbench.sources.shape import ShapeSource
from qbench.sources.shapes import SHAPES
from quant.errors import InputError
from quant.models import ModelConfig
from quant.sizes import num_weights

# Published sizes: https://huggingface.co, model cards.
PARAMS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "mistral-7b": 7_241_732_096,
    "bloom-176b": 176_247_271_424,
    "deepseek-v2": 235_741_434_880,
}


@pytest.mark.parametrize("name", PARAMS)
def test_shapes_have_the_published_number_of_weights(name):
    assert num_weights(ShapeSource(f"shape:{name}").tensors) == PARAMS[name]


def test_random_models_have_shapes_too():
    assert ShapeSource("shape:llama-3.2-1b").config is SHAPES["llama-3.2-1b"]
    assert not SHAPES.keys() & LARGE_SHAPES.keys() and PARAMS.keys() <= LARGE_SHAPES.keys()


def test_nothing_is_read():
    source = ShapeSource("shape:llama-2-7b")
    assert ModelConfig.of(source).kv_size == 4096 and source.tokenizer is None
    with pytest.raises(InputError, match="has no weights, only sizes"):
        source.read("model.norm.weight")


def test_fingerprints_distinguish_shapes():
    assert len({ShapeSource(f"shape:{name}").fingerprint() for name in PARAMS}) == len(PARAMS)
