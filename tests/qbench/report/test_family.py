import pytest

from qbench.report.family import recipe_family
from quant.recipes.presets import RECIPES

METHODS = {"rtn", "gptq", "awq", "smoothquant", "llm-int8", "imatrix", "hqq", "trellis"}


@pytest.mark.parametrize(
    ("recipe", "family"),
    [
        ("bf16", "unquantized"),
        ("bf16+kv-int4-kc", "unquantized"),
        ("rtn-w8a8-tensor", "rtn"),
        ("gptq-q4_k_m+kv-fp8", "gptq"),
        ("llm-int8-outliers", "llm-int8"),
        ("q4_k_m", "llama.cpp mix"),
        ("iq4_xs", "llama.cpp mix"),
        ("iq2_m", "llama.cpp mix"),
        ("mxfp4", "llama.cpp mix"),
        ("fp8-w8a8-static", "8-bit floats"),
        ("mxfp4a16", "4-bit floats"),
        ("imatrix-iq4_xs", "imatrix"),
        ("recipes/gptq-w4.yaml", "own file"),
        ("hqq-w4g64", "hqq"),
        ("trellis-w2", "trellis"),
        ("rot-gptq-w4g128", "gptq"),
        ("of-tomorrow", "other"),
    ],
)
def test_family_of_a_name(recipe, family):
    assert recipe_family(recipe) == family


def test_every_named_recipe_has_a_family():
    others = {"unquantized", "llama.cpp mix", "8-bit floats", "4-bit floats"}
    assert {recipe_family(name) for name in RECIPES} == {*METHODS, *others}
