import re
from dataclasses import replace

import pytest
from support.shape_source import LlamaShape, ShapeSource

from quant.errors import InputError
from quant.formats import get_format
from quant.job import make_job
from quant.recipes import RECIPES, get_recipe
from quant.recipes.containers import fit_row
from quant.recipes.llama_mix import use_more_bits

SMALL = ShapeSource(LlamaShape(num_layers=2))


def formats(recipe, source=SMALL) -> dict[str, str]:
    return {name: choice.format for name, choice in recipe.choose(source).items()}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_presets_plan_every_tensor_in_order(name, tied):
    source = ShapeSource(LlamaShape(num_layers=2, tied=tied))
    recipe = get_recipe(name)
    choices = recipe.choose(source)
    assert list(choices) == list(source.tensors)
    assert all(choice.reason for choice in choices.values())
    assert {choice.format for choice in choices.values()} <= recipe.policy.formats | {"f32", "bf16"}
    recipe.make_method()


def test_heads_that_the_kv_format_cannot_hold():
    source = ShapeSource(LlamaShape(num_layers=2, head_dim=48))
    with pytest.raises(InputError, match="groups of 32 channels do not divide a head of 48"):
        get_recipe("q8_0+kv-int4").choose(source)


def test_bf16_in_both_containers():
    recipe = get_recipe("bf16")
    assert recipe.container == "hf"
    assert set(formats(recipe).values()) == {"bf16"}
    in_gguf = formats(recipe.in_container("gguf"))
    assert {name for name, fmt in in_gguf.items() if fmt == "f32"} == {name for name in in_gguf if "norm" in name}
    assert set(in_gguf.values()) == {"f32", "bf16"}


@pytest.mark.parametrize("name, fmt", [("rtn-w8", "w8"), ("rtn-w4g128", "w4g128")])
def test_integer_recipes_take_only_decoder_linears(name, fmt):
    for tensor, got in formats(get_recipe(name)).items():
        assert got == (fmt if "_proj" in tensor else "bf16"), tensor


@pytest.mark.parametrize("name, container", [("q4_0", "hf"), ("rtn-w8", "gguf"), ("q6_k", "hf")])
def test_container_that_cannot_hold_a_recipe(name, container):
    with pytest.raises(InputError, match=f"recipe {name}: a {container} artifact cannot hold"):
        get_recipe(name).in_container(container)


def test_row_without_fallback_names_tensor_row_and_format():
    source = ShapeSource(LlamaShape(ffn=172))
    message = r"^model\.layers\.0\.mlp\.down_proj\.weight: w4g128 needs rows of a multiple of 128 weights, got 172; in"
    with pytest.raises(InputError, match=message) as caught:
        get_recipe("rtn-w4g128").choose(source)
    assert "\n" not in str(caught.value)
    assert get_format("w8").name in formats(get_recipe("rtn-w8"), source).values()


@pytest.mark.parametrize(
    "name, fmt",
    [
        pytest.param(f"{method}-w{bits}g{size}{order}", f"w{bits}g{size}{suffix}", id=f"{method}-w{bits}g{size}{order}")
        for method, order, suffix in (("rtn", "", ""), ("gptq", "", ""), ("gptq", "-act", ""), ("awq", "", "-asym"))
        for bits in (2, 3, 4, 8)
        for size in (32, 16)
    ],
)
def test_other_groups_and_bits_are_recipes_too(name, fmt):
    source = ShapeSource(LlamaShape(ffn=352))
    recipe = get_recipe(name)
    assert formats(recipe, source)["model.layers.0.mlp.down_proj.weight"] == get_format(fmt).name
    assert recipe.name == name and recipe.options == ({"act_order": True} if name.endswith("-act") else {})


@pytest.mark.parametrize("size", [64, 32])
def test_hqq_has_groups_of_any_size_and_4_bits(size):
    assert get_recipe(f"hqq-w4g{size}").options == {"group_size": size}
    with pytest.raises(InputError, match="unknown recipe 'hqq-w3g"):
        get_recipe(f"hqq-w3g{size}")


@pytest.mark.parametrize(
    "name", ["rtn-w4g128", "gptq-w3g128", "gptq-w4g128-act", "awq-w8g256", "rot-gptq-w2g128+kv-int8"]
)
@pytest.mark.parametrize("shape", [LlamaShape(hidden=576, ffn=1536), LlamaShape(ffn=352)], ids=["576", "352"])
def test_refused_rows_name_a_recipe_that_holds_all_of_them(name, shape):
    source = ShapeSource(shape)
    with pytest.raises(InputError, match="or use the recipe ") as caught:
        get_recipe(name).choose(source)
    get_recipe(str(caught.value).split("or use the recipe ")[1]).choose(source)


@pytest.mark.parametrize(
    "name, smaller", [("q4_k_m", "q4_0"), ("imatrix-q6_k", "imatrix-q5_1"), ("gptq-q5_k_s", "gptq-q5_0")]
)
def test_growth_by_fallbacks_is_named_with_a_recipe_that_fits(name, smaller):
    source = ShapeSource(LlamaShape(num_layers=2, hidden=576, ffn=1536, heads=9, kv_heads=3))
    job = make_job(source, get_recipe(name))
    *replaced, growth = job.warnings()
    assert all(re.search(r": \d+ x q\d_\d instead, [\d.]+ bits per weight, not [\d.]+$", line) for line in replaced)
    (found,) = re.findall(r"then takes ([\d.]+) MB, not ([\d.]+) MB", growth)
    size, whole = map(float, found)
    other = make_job(source, get_recipe(smaller))
    assert f"; {smaller} fits these rows and takes {other.size_bytes / 1e6:.1f} MB" in growth
    assert round(other.size_bytes / 1e6, 1) <= whole < size == round(job.size_bytes / 1e6, 1)


@pytest.mark.parametrize("stored, is_rounded", [("f64", False), ("bf16", False), ("q8_0", True)])
def test_a_source_of_floats_is_not_quantized_already(stored, is_rounded):
    job = make_job(ShapeSource(LlamaShape(num_layers=2), stored), get_recipe("q4_0"))
    assert any("is quantized already" in line for line in job.warnings()) is is_rounded


def test_growth_beyond_the_source_is_named():
    shape = LlamaShape(num_layers=2, hidden=576, ffn=1536, heads=9, kv_heads=3)
    source = ShapeSource(shape, "q4_1")
    job = make_job(source, get_recipe("q4_k_m"))
    held = sum(info.size_bytes for info in source.tensors.values())
    growth = f"q4_k_m then takes {job.size_bytes / 1e6:.1f} MB, not [\\d.]+ MB, and its source {held / 1e6:.1f} MB; "
    assert job.size_bytes > held and any(re.match(growth, line) for line in job.warnings())


@pytest.mark.parametrize("name", ["rot-rtn-w8a8", "rot-gptq-w4g32+kv-int8", "rot-q4_k_m"])
def test_a_rotation_before_any_recipe(name):
    recipe, plain = get_recipe(name), get_recipe(name.removeprefix("rot-"))
    assert recipe.rotated and not plain.rotated and recipe.name == name
    assert replace(recipe, rotated=False, name=plain.name) == plain


@pytest.mark.parametrize(
    "spec, message",
    [
        pytest.param("q4_km", "unknown recipe 'q4_km', did you mean 'q4_k_m'[?]; known are bf16, ", id="near"),
        pytest.param(
            "rtn-w4g48", r"unknown recipe 'rtn-w4g48', .* groups \(g128\) may also be of 256, 128, ", id="g48"
        ),
        pytest.param("awq-w5g32", "unknown recipe 'awq-w5g32'.* and of 2, 3, 4 and 8 bits", id="bits"),
        pytest.param("Q8_0", "did you mean 'q8_0'[?]", id="case"),
        pytest.param("q2_k_s", "did you mean 'imatrix-q2_k_s'[?]", id="needs a calibration"),
        pytest.param("xyzzy", "unknown recipe 'xyzzy'; known are bf16, rtn-w8,", id="far"),
        pytest.param("q8_0+kv-int9", r"unknown KV suffix '\+kv-int9'; known are \+kv-fp8", id="kv unknown"),
        pytest.param("q8_0+", r"unknown KV suffix '\+'", id="kv empty"),
        pytest.param("absent/recipe.yaml", "recipe absent/recipe.yaml: No such file", id="no file"),
    ],
)
def test_unknown_recipe(spec, message):
    with pytest.raises(InputError, match=message):
        get_recipe(spec)


def test_kv_suffix():
    recipe = get_recipe("q8_0+kv-int8")
    assert (recipe.name, recipe.kv) == ("q8_0+kv-int8", "kv-int8")
    assert recipe.policy == get_recipe("q8_0").policy and get_recipe("q8_0").kv is None


@pytest.mark.parametrize(
    "row_size, names",
    [
        (172, "in a YAML recipe give it w4 "),
        (96, "in a YAML recipe give it w4g32 or w4g16 or w4 "),
        (64, "in a YAML recipe give it w4g64 or w4g32 or w4g16 or"),
    ],
)
def test_group_sizes_that_fit_are_named(row_size, names):
    with pytest.raises(InputError, match=f"got {row_size}; {names}"):
        fit_row("down_proj", "w4g128", row_size, "hf")


def test_layers_with_more_bits_by_hand():
    assert [layer for layer in range(16) if use_more_bits(layer, 16)] == [0, 1, 4, 7, 10, 13, 14, 15]
