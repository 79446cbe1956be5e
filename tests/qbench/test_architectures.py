"""Every architecture from the files that it is published in to logits, and through GGUF and quantization."""

import pytest
import torch
from support.architectures import EVERY_EXPERT, GGUF_KINDS, KINDS, random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.close import assert_close

from qbench.runtime import load_model
from qbench.sources import open_source
from quant.models import ModelConfig
from quant.recipes import get_recipe

TOKENS = torch.randint(160, (1, 60), generator=torch.Generator().manual_seed(1))


def small_source(kind: str, **changes) -> ArraySource:
    config = small_config(kind, **changes)
    return ArraySource(config, random_weights(config))


FILES = [pytest.param(kind, "model", id=f"{kind}, directory") for kind in KINDS]
FILES += [pytest.param(kind, "model.gguf", id=f"{kind}, GGUF") for kind in GGUF_KINDS]
EIGHT_BITS = [pytest.param(kind, "rtn-w8", "model", id=f"{kind}, w8") for kind in KINDS]
EIGHT_BITS += [pytest.param(kind, "q8_0", "model.gguf", id=f"{kind}, q8_0") for kind in GGUF_KINDS]


@pytest.mark.parametrize("kind, name", FILES)
def test_files_give_the_logits_of_their_weights(tmp_path, kind, name):
    source = small_source(kind)
    written = open_source(str(write_artifact(source, tmp_path / name)))
    assert ModelConfig.of(written) == ModelConfig.of(source)
    assert torch.equal(load_model(written)(TOKENS), load_model(source)(TOKENS))


@pytest.mark.parametrize("kind, recipe, name", EIGHT_BITS)
def test_quantized_to_eight_bits_they_stay_near(tmp_path, kind, recipe, name):
    source = small_source(kind, **EVERY_EXPERT.get(kind, {}))
    written = open_source(str(write_artifact(source, tmp_path / name, recipe=get_recipe(recipe))))
    exact = load_model(source)(TOKENS)
    error = (load_model(written, impl="reference")(TOKENS) - exact).pow(2).mean().sqrt() / exact.std()
    # A weight is off by a uniform half step of 127 in absmax, about 3 deviations; 9 products in each of 3 layers.
    assert_close(error, 0, atol=3 / 127 / 12**0.5 * (9 * 3) ** 0.5)
    assert error > 2**-12, "nothing was quantized"
