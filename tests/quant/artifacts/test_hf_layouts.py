"""Layouts of quantized linears: written tensors come back and equal those of the layout's own tools; errors are
named.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from quant.artifacts import HFSource
from quant.artifacts.hf_writer import write_hf
from quant.artifacts.layouts import LAYOUTS
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.formats.fp8 import FP8_FORMATS

CONFIG = small_config()
WIDE = small_config(hidden_size=128, intermediate_size=384)  # rows of whole blocks of 128
MODULE = "model.layers.0.mlp.down_proj"
LINEAR = f"{MODULE}.weight"
INT_FORMATS = ("w2g32", "w3g32-asym", "w4g32", "w4g32-asym", "w4", "w8-asym", "w8")
CASES = [
    *((fmt, packing) for packing in ("gptq", "compressed-tensors") for fmt in INT_FORMATS),
    *((fmt, "compressed-tensors") for fmt in ("w8a8", "w8a8-wtensor", "w8a8-atensor", "w8a8-wtensor-astatic")),
    *(
        (fmt, "compressed-tensors")
        for fmt in (*FP8_FORMATS, "nvfp4a16", "mxfp4a16", "nvfp4a16-had", "mxfp4a16-had", "w4a4")
    ),
    ("llm-int8", "bitsandbytes"),
    ("trellis-w3-l8", "trellis"),
]


def linear(weight, format_name, act_order=False):
    """The weight in this format, with every shared array that its QTensor may have."""
    fmt = get_format(format_name)
    qtensor = fmt.quantize(weight)
    if "static" in format_name:
        return fmt.with_input_absmax(qtensor, 3.0)
    if act_order:
        q, scale, zero_point, _ = fmt.unpack(qtensor)
        g_idx = np.random.default_rng(0).permutation(np.arange(weight.shape[1]) // fmt.group_size)
        return fmt.pack(q, scale, None if fmt.symmetric else zero_point, g_idx)
    return qtensor


def model(format_name, act_order=False, others=None):
    """A source whose decoder linears are in this format, or, those whose name ends so, in one of `others`."""

    def stored(name, weight):
        if "_proj" not in name:
            return get_format("bf16").quantize_ref(weight)
        chosen = next((fmt for end, fmt in (others or {}).items() if name.endswith(end)), format_name)
        plain = chosen in ("bf16", "f16", "f32")
        return get_format(chosen).quantize_ref(weight) if plain else linear(weight, chosen, act_order)

    config = WIDE if get_format(format_name).block_size == 128 else CONFIG
    return ArraySource(config, {name: stored(name, weight) for name, weight in random_weights(config).items()})


def assert_comes_back(source, folder):
    again = HFSource(folder)
    assert again.tensors == source.tensors
    for name in source.tensors:
        got, expected = again.read(name), source.read(name)
        for arrays, wanted in ((got.parts, expected.parts), (got.shared, expected.shared)):
            assert arrays.keys() == wanted.keys()
            for part, array in wanted.items():
                assert arrays[part].dtype == array.dtype and np.array_equal(arrays[part], array)


@pytest.mark.parametrize("format_name, packing", CASES)
def test_comes_back(tmp_path, format_name, packing):
    source = model(format_name)
    write_hf(source, tmp_path, packing=packing)
    assert json.loads((tmp_path / "config.json").read_text())["quantization_config"]["quant_method"] == packing
    assert_comes_back(source, tmp_path)


@pytest.mark.parametrize("format_name", ["w4g32", "w3g32-asym"])
def test_act_order_comes_back(tmp_path, format_name):
    source = model(format_name, act_order=True)
    write_hf(source, tmp_path, packing="gptq")
    assert source.tensors[LINEAR].has_shared("g_idx")
    assert json.loads((tmp_path / "config.json").read_text())["quantization_config"]["desc_act"] is True
    assert_comes_back(source, tmp_path)


@pytest.mark.parametrize(
    "packing, others",
    [
        pytest.param("compressed-tensors", {"o_proj.weight": "w8a8", "up_proj.weight": "bf16"}, id="w8a8"),
        pytest.param("compressed-tensors", {"o_proj.weight": "w3g32-asym"}, id="3 bits"),
        pytest.param("gptq", {"o_proj.weight": "w8", "up_proj.weight": "bf16", "q_proj.weight": "w2g32"}, id="gptq"),
        pytest.param("gptq", {"k_proj.weight": "w4g32-asym"}, id="gptq, one asymmetric"),
    ],
)
def test_mixed_formats_come_back(tmp_path, packing, others):
    source = model("w4g32", others=others)
    write_hf(source, tmp_path, packing=packing)
    assert_comes_back(source, tmp_path)


@pytest.mark.parametrize("format_name, packing", [("w4g32", "gptq"), ("llm-int8", "bitsandbytes"), ("w8a8", None)])
def test_a_copy_keeps_its_layout(tmp_path, format_name, packing):
    write_hf(model(format_name), tmp_path, packing=packing)
    (tmp_path / "copy").mkdir()
    write_hf(HFSource(tmp_path), tmp_path / "copy")
    config = [json.loads((folder / "config.json").read_text()) for folder in (tmp_path, tmp_path / "copy")]
    assert config[0] == config[1]
    tensors, copied = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "copy"))
    assert tensors.keys() == copied.keys()
    assert all(torch.equal(tensor, copied[name]) for name, tensor in tensors.items())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_gptq_words_bit_by_bit(bits):
    """Code by code, as AutoGPTQ's packing loop lays them: input k of output n from bit k * bits of column n."""
    rng = np.random.default_rng(bits)
    fmt = get_format(f"w{bits}g32-asym")
    q = rng.integers(fmt.qmin, fmt.qmax + 1, (64, 96)).astype(np.int8)
    zero_point = rng.integers(fmt.qmin, fmt.qmax + 1, (64, 3)).astype(np.int8)
    qtensor = fmt.pack(q, np.ones((64, 3), np.float16), zero_point)
    layout = LAYOUTS["gptq"].of_tensors({LINEAR: _info(qtensor)})
    parts = layout.pack(qtensor)

    def code(words, axis_index, other):
        stream = sum(int(np.uint32(word)) << 32 * i for i, word in enumerate(words(other)))
        return (stream >> axis_index * bits & (1 << bits) - 1) + fmt.qmin

    for k, n in rng.integers(0, (96, 64), (50, 2)):
        assert code(lambda n: parts["qweight"][:, n], int(k), n) == q[n, k]
        assert code(lambda g: parts["qzeros"][g], int(n), k // 32) == zero_point[n, k // 32]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gptq_version_1_is_read_with_its_borrows(tmp_path, bits):
    """GPTQModel takes the 1 from whole words, so that a zero point of 0 borrows from its neighbour."""
    source = model(f"w{bits}g32-asym")
    write_hf(source, tmp_path, packing="gptq")
    ones = sum(1 << bit for bit in range(0, 32, bits))

    def to_v1(tensors):
        for name in [name for name in tensors if name.endswith("qzeros")]:
            words = tensors[name].numpy().view(np.uint32) - np.uint32(ones)
            tensors[name] = torch.from_numpy(words.view(np.int32))

    edit_tensors(tmp_path, to_v1)
    edit_quantization(tmp_path, checkpoint_format="gptq")
    assert_comes_back(source, tmp_path)


def test_a_bias_of_zeros_is_nothing(tmp_path):
    """AutoGPTQ wrote one for every linear; one that adds something would be lost."""
    source = model("w4g32")
    write_hf(source, tmp_path, packing="gptq")
    edit_tensors(tmp_path, lambda tensors: tensors.update({f"{MODULE}.bias": torch.zeros(64).half()}))
    assert_comes_back(source, tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors[f"{MODULE}.bias"].__setitem__(3, 1.0))
    with pytest.raises(InputError, match=r"down_proj\.bias' .* would be lost"):
        HFSource(tmp_path)


@pytest.mark.parametrize("format_name", INT_FORMATS)
def test_compressed_tensors_packs_the_same_bytes(tmp_path, format_name):
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    source = model(format_name)
    write_hf(source, tmp_path, packing="compressed-tensors")
    config = QuantizationConfig.model_validate(
        json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    )
    fmt, qtensor = get_format(format_name), source.read(LINEAR)
    _, scale, zero_point, _ = fmt.unpack(qtensor)
    state = {
        "weight": torch.from_numpy(dequantize(qtensor)),
        "weight_scale": torch.from_numpy(scale.astype(np.float32)),
        "weight_zero_point": torch.from_numpy(zero_point),
    }
    packed = BaseCompressor.get_value_from_registry(config.format).compress(state, config.config_groups["group_0"])
    stored = load_file(tmp_path / "model.safetensors")
    assert {f"{MODULE}.{part}" for part in packed} == {name for name in stored if name.startswith(MODULE)}
    assert all(
        torch.equal(tensor.to(stored[f"{MODULE}.{p}"].dtype), stored[f"{MODULE}.{p}"]) for p, tensor in packed.items()
    )


def test_groups_out_of_order_of_older_compressed_tensors(tmp_path):
    source = model("w4g32", act_order=True)
    with pytest.raises(InputError, match=r"no place for groups out of order .*use packing gptq"):
        write_hf(source, tmp_path)
    write_hf(model("w4g32"), tmp_path)

    def add(tensors):
        for name in source.tensors:
            if "_proj" in name:
                tensors[name.replace("weight", "weight_g_idx")] = torch.from_numpy(source.read(name).shared["g_idx"])

    edit_tensors(tmp_path, add)
    assert_comes_back(source, tmp_path)


@pytest.mark.parametrize("packing, part", [("gptq", "scales"), ("compressed-tensors", "weight_scale")])
def test_scales_of_other_dtypes(tmp_path, packing, part):
    """bfloat16 exactly; float32 to the nearest float16, and only if that is near."""
    source = model("w4g32")
    write_hf(source, tmp_path, packing=packing)
    name = f"{MODULE}.{part}"

    def store(values):
        edit_tensors(tmp_path, lambda tensors: tensors.__setitem__(name, values(tensors[name].float())))

    store(lambda scale: scale.bfloat16())
    expected = load_file(tmp_path / "model.safetensors")[name].float().numpy()
    got = HFSource(tmp_path).read(LINEAR).parts["weight_scale"]
    assert np.array_equal(got.T if packing == "gptq" else got, expected)
    store(lambda scale: scale * (1 + 2**-13))
    assert HFSource(tmp_path).read(LINEAR).parts["weight_scale"].dtype == np.float16
    store(lambda scale: scale * 1e-9)
    with pytest.raises(InputError, match=rf"{part}' holds .* scales are kept in float16"):
        HFSource(tmp_path).read(LINEAR)


def test_targets_by_name_and_pattern(tmp_path):
    """The nearest of name, pattern and class decides, in any order of the groups."""
    source = model("w4g32", others={"o_proj.weight": "w4g32-asym"})
    write_hf(source, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    groups = config["quantization_config"]["config_groups"]
    for group in groups.values():
        group["targets"] = ["Linear"] if group["weights"]["symmetric"] else ["re:.*o_proj$"]
    config["quantization_config"]["config_groups"] = dict(sorted(groups.items(), key=lambda item: item[1]["targets"]))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert_comes_back(source, tmp_path)


def _info(qtensor):
    return ArraySource(CONFIG, {LINEAR: qtensor}).tensors[LINEAR]


def transforms(size=16, kind="hadamard", **changes):
    """The changes of a quantization_config that turn the inputs of all linears."""
    apply = {"targets": ["Linear"], "location": "input", "ignore": ["lm_head"]} | changes
    return {"transform_config": {"config_groups": {"u": {"type": kind, "head_dim": size, "apply": [apply]}}}}


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def edit_quantization(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= changes
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    "format_name, packing, changes, words",
    [
        pytest.param(
            "w4g32",
            "gptq",
            {"quant_method": "hqq"},
            r"of 'hqq'; read here: compressed-tensors, gptq, bits.*; for others take the original model",
            id="hqq",
        ),
        pytest.param(
            "w4g32",
            "gptq",
            {"checkpoint_format": "marlin"},
            "'marlin' in 'int32'; read here: gptq.*; for others take the original model",
            id="marlin",
        ),
        pytest.param(
            "w4g32",
            "gptq",
            {"bits": 5},
            "'bits': 5.*read here: bits 2, 3, 4 or 8.*; for others take the original model",
            id="5 bits",
        ),
        pytest.param("w4g32", "gptq", {"sym": "yes"}, "'sym': 'yes'", id="sym"),
        pytest.param("w4g32", "gptq", {"dynamic": {"+:(": {}}}, "is no regular expression", id="pattern"),
        pytest.param(
            "w4g32", "gptq", {"group_size": 64}, r"qzeros' is I32 \[2, 8\], expected I32 \[1, 8\]", id="groups"
        ),
        pytest.param("w4g32", "gptq", {"bits": 8}, r"qweight' is I32 \[\d+, \d+\], expected", id="8 bits"),
        pytest.param("w4g32", "compressed-tensors", {"config_groups": {}}, "no config group is for it", id="no group"),
        pytest.param("w8a8", "compressed-tensors", {"format": "x"}, None, id="group's own format"),
        pytest.param("w4g32", "compressed-tensors", {"kv_cache_scheme": {"dynamic": True}}, "kv_cache_scheme", id="kv"),
        pytest.param("nvfp4a16", "compressed-tensors", transforms(ignore=["re:.*"]), None, id="all left out"),
        pytest.param("nvfp4a16", "compressed-tensors", transforms(size=32), "turns 32 .*read here are 16", id="size"),
        pytest.param("w8a8", "compressed-tensors", transforms(), "which is w8a8; read here are 16", id="w8a8 turned"),
        pytest.param("nvfp4a16", "compressed-tensors", transforms(kind="random-matrix"), "not read here", id="random"),
        pytest.param("nvfp4a16", "compressed-tensors", transforms(location="output"), "not read here", id="outputs"),
        pytest.param("nvfp4a16", "compressed-tensors", transforms(location=[]), "not read here", id="no place"),
        pytest.param("nvfp4a16", "compressed-tensors", transforms(targets=7), "targets", id="targets"),
        pytest.param("nvfp4a16", "compressed-tensors", {"transform_config": [1]}, "transform_config", id="list"),
        pytest.param("nvfp4a16", "compressed-tensors", {"transform_config": {"x": 1}}, None, id="no transforms"),
        pytest.param("nvfp4a16", "compressed-tensors", transforms(ignore=[]), "not quantized, and trans", id="head"),
        pytest.param(
            "llm-int8",
            "bitsandbytes",
            {"load_in_8bit": False, "load_in_4bit": True},
            "has load_in_4bit True .*read here: load_in_8bit .*; for others take the original model",
            id="4 bit",
        ),
        pytest.param("trellis-w2-l8", "trellis", {"linears": None}, "has no linears", id="no linears"),
        pytest.param("trellis-w2-l8", "trellis", {"linears": {MODULE: "w4"}}, "expected trellis-w2", id="other"),
        pytest.param(
            "llm-int8", "bitsandbytes", {"llm_int8_threshold": 5.0}, "with a threshold of 6.0", id="threshold"
        ),
    ],
)
def test_other_configs(tmp_path, format_name, packing, changes, words):
    write_hf(model(format_name), tmp_path, packing=packing)
    edit_quantization(tmp_path, **changes)
    if words is None:
        HFSource(tmp_path)
        return
    with pytest.raises(InputError, match=words) as caught:
        HFSource(tmp_path)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "format_name, packing, part, value, words",
    [
        pytest.param("w4g32", "gptq", "qzeros", None, "qzeros' is missing", id="no zero points"),
        pytest.param("w4g32", "gptq", "qzeros", torch.zeros((3, 8)).int(), "has zero points", id="zero"),
        pytest.param("w4g32", "gptq", "g_idx", torch.full((96,), 3).int(), "none of 0 to 2", id="g_idx"),
        pytest.param("llm-int8", "bitsandbytes", "SCB", torch.ones(64, 1), r"\[64, 1\], expected F32 \[64\]", id="SCB"),
        pytest.param("llm-int8", "bitsandbytes", "weight_format", torch.tensor(2).byte(), "order", id="rows"),
        pytest.param("w8a8", "compressed-tensors", "weight_scale", torch.zeros(64, 1), "no number above 0", id="scale"),
        pytest.param("trellis-w2-l8", "trellis", "weight_scale", torch.zeros(64, 1), "no number above 0", id="0"),
        pytest.param("trellis-w2-l8", "trellis", "weight_trellis", None, "weight_trellis' is missing", id="trellis"),
        pytest.param("w8a8", "compressed-tensors", "input_scale", torch.ones(1), "would be lost", id="a part too many"),
        pytest.param("w8a8-astatic", "compressed-tensors", "input_scale", None, "input_scale' is missing", id="static"),
    ],
)  # fmt: skip
def test_broken_parts(tmp_path, format_name, packing, part, value, words):
    write_hf(model(format_name), tmp_path, packing=packing)
    edit_tensors(
        tmp_path,
        lambda tensors: (
            tensors.pop(f"{MODULE}.{part}") if value is None else tensors.update({f"{MODULE}.{part}": value})
        ),
    )
    with pytest.raises(InputError, match=words) as caught:
        HFSource(tmp_path).read(LINEAR)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "format_name, packing, words",
    [
        ("llm-int8", "gptq", "gptq layout has no place for llm-int8"),
        ("w4g32", "bitsandbytes", "bitsandbytes layout has no place for w4g32"),
        ("w4g32", "trellis", "trellis layout has no place for w4g32"),
    ],
)
def test_formats_without_a_place(tmp_path, format_name, packing, words):
    with pytest.raises(InputError, match=words):
        write_hf(model(format_name), tmp_path, packing=packing)


def test_gptq_needs_whole_words():
    qtensor = get_format("w4g32").quantize_ref(np.ones((60, 96), np.float32))
    with pytest.raises(InputError, match=r"words of 32 bits .*use packing compressed-tensors"):
        LAYOUTS["gptq"].of_tensors({LINEAR: _info(qtensor)})


KV_ENTRY = {"format": "kv-fp8-cal", "k_scale": [[0.5], [0.25]], "v_scale": [[2.0], [3.0]]}


@pytest.mark.parametrize("format_name", ["bf16", "w4g32", "w8a8"])
@pytest.mark.parametrize("heads", [1, 2], ids=["tensor", "heads"])
def test_scales_of_keys_and_values(tmp_path, format_name, heads):
    source = model(format_name)
    name = "kv-fp8-cal" if heads == 1 else "kv-fp8-cal-head"
    scales = [[0.5 + layer + head for head in range(heads)] for layer in range(2)]
    source.config["kv_cache"] = {"format": name, "k_scale": scales, "v_scale": scales}
    write_hf(source, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["model.layers.1.self_attn.k_scale"].shape == ((1,) if heads == 1 else (2, 1, 1))
    assert HFSource(tmp_path).config["kv_cache"] == source.config["kv_cache"]


@pytest.mark.parametrize("packing", ["gptq", "compressed-tensors"])
def test_kv_formats_of_our_own_stay_in_the_config(tmp_path, packing):
    source = model("w4g32")
    source.config["kv_cache"] = {"format": "kv-int8"} if packing == "compressed-tensors" else KV_ENTRY
    write_hf(source, tmp_path, packing=packing)
    assert HFSource(tmp_path).config["kv_cache"] == source.config["kv_cache"]


@pytest.mark.parametrize("drop", ["scale", "scheme"])
def test_scales_and_scheme_come_together(tmp_path, drop):
    source = model("w4g32")
    source.config["kv_cache"] = KV_ENTRY
    write_hf(source, tmp_path)
    if drop == "scale":
        edit_tensors(tmp_path, lambda tensors: tensors.pop("model.layers.1.self_attn.v_scale"))
    else:
        edit_quantization(tmp_path, kv_cache_scheme=None)
    with pytest.raises(InputError, match="v_scale" if drop == "scale" else "no kv_cache_scheme"):
        HFSource(tmp_path)
