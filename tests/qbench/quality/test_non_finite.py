"""The first activation that is not finite, with its layer and token."""

import numpy as np
import pytest
from support.artifact import write_artifact
from support.damage import edit_hf

from qbench.cli.quality_lines import _place
from qbench.quality.evaluate import evaluate
from qbench.run.work import QualityWork
from qbench.sources import open_source
from quant.recipes import get_recipe

NAN = 0x7FC0  # bfloat16


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("The old man sat by the river and watched the boats. " * 40)
    return str(path)


def damaged(folder, tensor: str, value: int, place=(3, 5)):
    path = write_artifact(open_source("ref:llama"), folder / "model", recipe=get_recipe("bf16"))
    edit_hf(path, tensor, lambda rows: rows.__setitem__(place, np.uint16(value)))
    return str(path)


@pytest.mark.parametrize(
    ("tensor", "value", "layer", "part"),
    [
        ("model.layers.1.mlp.down_proj.weight", NAN, 1, "feed-forward net"),
        ("model.layers.2.self_attn.o_proj.weight", NAN, 2, "attention"),
    ],
)
def test_the_layer_and_the_token_are_reported(tmp_path, text, tensor, value, layer, part):
    quality = evaluate(damaged(tmp_path, tensor, value), QualityWork(text, 1)).quality
    found = quality.non_finite_at
    assert quality.non_finite and quality.perplexity is None
    assert (found.layer, found.part, found.token, found.kind) == (layer, part, 0, "NaN")
    assert _place(found) == f"NaN first at token 0 of window 0, in layer {layer} after the {part}"


def test_a_damaged_embedding_is_found_at_the_first_use_of_its_token(tmp_path, text):
    path = damaged(tmp_path, "model.embed_tokens.weight", NAN, place=(slice(10, None), 0))
    found = evaluate(path, QualityWork(text, 1)).quality.non_finite_at
    assert found.part == "embedding" and found.layer is None


def test_a_healthy_model_has_no_such_place(text):
    quality = evaluate("ref:llama", QualityWork(text, 1)).quality
    assert quality.non_finite == 0 and quality.non_finite_at is None and "non_finite_at" not in quality.to_json()
