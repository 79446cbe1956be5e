import pytest
from support.refused_rows import refused_rows
from support.shape_source import LlamaShape, ShapeSource

from quant.errors import InputError
from quant.methods import make_method
from quant.recipes import RECIPES, get_recipe

SMALL = ShapeSource(LlamaShape(num_layers=2))


@pytest.fixture
def recipe_of(tmp_path):
    def read(text: str):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return get_recipe(path)

    return read


def test_first_match_wins(recipe_of):
    recipe = recipe_of("""
        container: gguf
        default: q4_k
        rules:
          - {match: "*.layers.0.mlp.down_proj*", format: q8_0}
          - {match: "*.down_proj*", format: q6_k}
          - {match: "*.layers.0.*", format: q5_k}
    """)
    assert (recipe.name, recipe.container, recipe.method) == ("mine", "gguf", "rtn")
    choices = recipe.choose(SMALL)
    got = {name.removeprefix("model.layers."): (choice.format, choice.reason) for name, choice in choices.items()}
    assert got["0.mlp.down_proj.weight"] == ("q8_0", "rule 1: *.layers.0.mlp.down_proj*")
    assert got["1.mlp.down_proj.weight"] == ("q6_k", "rule 2: *.down_proj*")
    assert got["0.self_attn.q_proj.weight"] == ("q5_k", "rule 3: *.layers.0.*")
    assert got["0.input_layernorm.weight"] == ("f32", "vector: f32 in gguf")
    assert got["1.self_attn.q_proj.weight"] == ("q4_k", "default")
    assert got["lm_head.weight"] == ("q4_k", "default")


def test_rotate_is_read_from_a_recipe(recipe_of):
    assert recipe_of("{base: q4_0, rotate: true}").rotated
    assert not recipe_of("{base: q4_0}").rotated
    learned = recipe_of("{base: rtn-w4a4, rotate: learned}")
    assert learned.rotated and learned.learned and not recipe_of("{base: q4_0, rotate: true}").learned


def test_integer_default_is_for_decoder_linears(recipe_of):
    choices = recipe_of("{container: hf, default: w4g128, rules: [{match: lm_head.weight, format: w8}]}").choose(SMALL)
    assert choices["model.embed_tokens.weight"].format == "bf16"
    assert choices["lm_head.weight"].format == "w8"
    assert choices["model.layers.1.mlp.up_proj.weight"].format == "w4g128"


def test_float_default_is_for_every_matrix(recipe_of):
    choices = recipe_of("{container: hf, default: f16}").choose(SMALL)
    assert choices["model.embed_tokens.weight"].format == "f16"


def test_integer_embedding_is_an_error(recipe_of):
    recipe = recipe_of("{container: hf, default: bf16, rules: [{match: '*', format: w8}]}")
    with pytest.raises(InputError, match=r"model\.embed_tokens\.weight: w8 is for linears, got an embedding"):
        recipe.choose(SMALL)


@pytest.mark.parametrize("text, message", refused_rows(__file__, "refused_recipes.yaml"))
def test_bad_files(recipe_of, text, message):
    with pytest.raises(InputError, match=message) as caught:
        recipe_of(text)
    assert "\n" not in str(caught.value) and "mine.yaml" in str(caught.value)


def test_rules_over_a_named_recipe(recipe_of):
    recipe = recipe_of("{base: q4_k_m, kv: kv-int8, rules: [{match: 'lm_head*', format: q8_0}]}")
    assert (recipe.container, recipe.kv) == ("gguf", "kv-int8")
    expected = {name: row.format for name, row in get_recipe("q4_k_m").choose(SMALL).items()} | {
        "lm_head.weight": "q8_0"
    }
    assert {name: row.format for name, row in recipe.choose(SMALL).items()} == expected


@pytest.mark.parametrize("name", RECIPES)
def test_every_named_recipe_is_a_base(recipe_of, name):
    recipe, preset = recipe_of(f"base: {name}"), get_recipe(name)
    assert recipe.choose(SMALL) == preset.choose(SMALL)
    assert (recipe.method, recipe.options, recipe.packing) == (preset.method, preset.options, preset.packing)


def test_a_rule_may_have_its_own_method(recipe_of):
    recipe = recipe_of("{base: q4_k_m, rules: [{match: '*.down_proj*', method: rtn}]}")
    source = ShapeSource(LlamaShape(num_layers=8))  # its first layer's down_proj is q6_k in the base
    choices, base = recipe.choose(source), get_recipe("q4_k_m").choose(source)
    down = "model.layers.0.mlp.down_proj.weight"
    assert (choices[down].method, choices[down].format) == (make_method("rtn", {}), base[down].format)
    assert base[down].format == "q6_k" and choices["model.layers.0.mlp.up_proj.weight"].method is None


def test_a_rule_that_matches_nothing(recipe_of):
    recipe = recipe_of("{base: q8_0, rules: [{match: '*', format: q6_k}, {match: '*.dawn_proj*', format: q4_k}]}")
    with pytest.raises(InputError, match=r"rule 2 matches no matrix of shapes \('\*\.dawn_proj\*'\)"):
        recipe.choose(SMALL)
