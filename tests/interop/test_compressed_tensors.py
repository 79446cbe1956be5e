"""Directories of compressed-tensors, from here to transformers and back: the same tokens give the same perplexity."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.architectures import EVERY_EXPERT
from support.array_source import ArraySource
from support.close import assert_close
from support.data import written
from support.perplexity import REFERENCE, assert_agree, assert_same_model, our_perplexity, their_perplexity
from support.small_directory import write_small

from qbench.quality.evaluate import read_text
from qbench.run.work import GENERATED, CalibrationWork
from qbench.runtime import load_model
from qbench.runtime.layers.linear import ReferenceLinear
from qbench.search.document import mix_document
from qbench.search.plan import SearchOptions, plan_search
from qbench.search.search import search
from qbench.search.sites import EXPERT, HF, sites_of
from qbench.search.solve import Option
from qbench.search.target import parse_target
from qbench.sources import open_source
from quant.artifacts import HFSource, make_artifact_job, write_artifact
from quant.artifacts.hf_writer import write_hf
from quant.formats import dequantize
from quant.formats.fp8 import FP8_FORMATS
from quant.quantize import QuantizedSource
from quant.recipes.yaml_recipe import recipe_from

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")

from compressed_tensors.compressors import BaseCompressor  # noqa: E402
from compressed_tensors.quantization import QuantizationConfig, preset_name_to_scheme  # noqa: E402
from compressed_tensors.quantization.lifecycle.initialize import is_cached_attention_module  # noqa: E402
from compressed_tensors.quantization.utils import calculate_qparams  # noqa: E402
from compressed_tensors.transform import TransformConfig, apply_transform_config  # noqa: E402


def load(path, dequantize=False):
    """Their model. Their loader makes no room for packed zero points unless it dequantizes while it loads."""
    config = {"quantization_config": transformers.CompressedTensorsConfig(dequantize=True)} if dequantize else {}
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **config)


def logits_of(model):
    return lambda tokens: model(tokens).logits


@pytest.mark.parametrize(
    "format_name",
    [
        "w4g32",
        "w4g32-asym",
        "w3",
        "w8",
        "w2g64-asym",
        "w8a8",
        "w8a8-wtensor-atensor",
        "w8a8-astatic",
        *FP8_FORMATS,
        "nvfp4a16",
        "mxfp4a16",
    ],
)
def test_they_load_ours(write_model, windows, format_name):
    path = write_model(format_name, "compressed-tensors")
    assert_same_model(path, logits_of(load(path, dequantize=format_name.endswith(("-asym", "fp4a16")))), windows)


@pytest.mark.parametrize("format_name", ["nvfp4a16-had", "mxfp4a16-had"])
def test_they_apply_our_transforms(write_model, windows, format_name):
    """As docs/quantize.md shows: transformers leaves transform_config alone, and their function applies it."""
    path = write_model(format_name, "compressed-tensors")
    model = load(path, dequantize=True)
    config = json.loads((path / "config.json").read_text())["quantization_config"]["transform_config"]
    transforms = TransformConfig.model_validate(config)
    for scheme in transforms.config_groups.values():
        scheme.apply = [args for args in scheme.apply if args.is_online()]
    apply_transform_config(model, transforms)
    assert_same_model(path, logits_of(model), windows)


def test_they_multiply_4_bit_inputs_as_we_do(write_model):
    """Linear by linear: in a whole model a difference in the last bit of a norm moves a few of the 16 codes."""
    path = write_model("w4a4", "compressed-tensors")
    theirs, ours = load(path), HFSource(path)
    names = [name for name, info in ours.tensors.items() if info.format == "w4a4"]
    assert names
    for name in names:
        linear = theirs.get_submodule(name.removesuffix(".weight"))
        x = torch.randn(20, linear.in_features, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            assert torch.equal(linear(x), ReferenceLinear(ours.read(name))(x)), name


def test_they_load_a_mix(tmp_path, windows):
    """As `qbench search` writes it: each product of a layer in a format of its own."""
    source = open_source(REFERENCE)
    sites = sites_of(source, HF)
    formats = list(sites[0].formats)
    options = [Option(formats[number % len(formats)], "rtn", 0, 0.0) for number, _ in enumerate(sites)]
    document = mix_document("mix", source, sites, options) | {"method": "rtn"}
    job = make_artifact_job(source, recipe_from(document, "mix"), tmp_path / "mix")
    path = write_artifact(QuantizedSource(job))
    assert {info.format for info in HFSource(path).tensors.values()} == set(formats)
    assert_same_model(path, logits_of(load(path)), windows)


@pytest.mark.parametrize(
    "kind, target", [("llama", "11bpw"), ("qwen3moe", "6bpw"), ("mixtral", "5.7bpw"), ("deepseek3", "6bpw")]
)
def test_they_load_a_searched_mix(tmp_path, kind, target):
    """Their loader keeps the weights of experts in float16, as the scales are. All products here are in float32."""
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "moe_intermediate_size"), 256)
    model = write_small(kind, tmp_path / "model", **sizes, **EVERY_EXPERT.get(kind, {}))
    text = written(tmp_path / "text.txt", read_text(None, REFERENCE))
    by = CalibrationWork(GENERATED, samples=8, seq_len=128)
    options = SearchOptions(parse_target(target), tmp_path / "mix", by, text=text, windows=6)
    found = search(plan_search(open_source(str(model)), options)).metrics
    assert found.chosen == "mix" and len({each.split()[0] for each in found.mix.values()}) > 1
    tokens = torch.arange(5, 69)[None]
    ours = load_model(with_experts_in_float16(HFSource(tmp_path / "mix")), impl="reference")(tokens)
    with torch.no_grad():
        theirs = torch.nn.Module.float(load(tmp_path / "mix"))(tokens).logits
    # Both compute in float32 and sum in other orders.
    assert_close(ours, theirs, atol=2**-16 * sizes["hidden_size"] ** 0.5 * float(theirs.std()))


def with_experts_in_float16(source):
    weights = {name: torch.from_numpy(dequantize(source.read(name))) for name in source.tensors}
    weights |= {name: each.half().float() for name, each in weights.items() if EXPERT.search(name)}
    config = {key: value for key, value in source.config.items() if key != "quantization_config"}
    return ArraySource(config, {name: each.numpy() for name, each in weights.items()})


@pytest.mark.parametrize(
    "preset, format_name",
    [
        ("W4A16", "w4g128"),
        ("W4A16_ASYM", "w4g128-asym"),
        ("W8A16", "w8g128"),
        ("W8A8", "w8a8"),
        ("FP8_DYNAMIC", "fp8-w8a8"),
    ],
)
def test_we_load_theirs(tmp_path, reference_dir, windows, preset, format_name):
    compress(reference_dir, tmp_path, preset)
    source = HFSource(tmp_path)
    assert {info.format for name, info in source.tensors.items() if "_proj" in name} == {format_name}
    assert_same_model(tmp_path, logits_of(load(tmp_path, dequantize=preset.endswith("ASYM"))), windows)


def compress(source, folder, preset):
    """The model as their own compressor stores it under this preset, with scales by their own rule in bfloat16."""
    scheme = preset_name_to_scheme(preset, ["Linear"])
    packing = "int-quantized" if scheme.input_activations else "pack-quantized"
    packing = "float-quantized" if scheme.weights.type == "float" else packing
    tensors = {}
    for name, weight in load_file(source / "model.safetensors").items():
        if "_proj" not in name:
            tensors[name] = weight
            continue
        group = scheme.weights.group_size or weight.shape[1]
        groups = weight.unflatten(1, (-1, group))
        scale, zero_point = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights)
        state = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero_point}
        stored = BaseCompressor.get_value_from_registry(packing).compress(state, scheme)
        tensors |= {name.replace("weight", part, 1): tensor.contiguous() for part, tensor in stored.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = QuantizationConfig(
        config_groups={"group_0": scheme}, format=packing, ignore=["lm_head"], quantization_status="compressed"
    )
    model_config = json.loads((source / "config.json").read_text())
    text = json.dumps({**model_config, "quantization_config": config.model_dump(mode="json")})
    (folder / "config.json").write_text(text)


class WithConfig:
    """A source with another config."""

    def __init__(self, source, config):
        self.spec, self.tensors, self.tokenizer, self.read = source.spec, source.tensors, source.tokenizer, source.read
        self.config = config


@pytest.mark.parametrize("kv_format, heads", [("kv-fp8-cal", 1), ("kv-fp8-cal-head", None)])
def test_calibrated_keys_and_values(tmp_path, windows, kv_format, heads):
    """Scales that they read, and that keep e4m3 coarse enough to be seen in the perplexity."""
    source = open_source(REFERENCE)
    plain = our_perplexity(source, windows)
    heads = heads or source.config["num_key_value_heads"]
    scales = [[0.5 + layer + head for head in range(heads)] for layer in range(source.config["num_hidden_layers"])]
    entry = {"format": kv_format, "k_scale": scales, "v_scale": scales}
    write_hf(WithConfig(source, {**source.config, "kv_cache": entry}), tmp_path)
    assert "scale" not in json.dumps(json.loads((tmp_path / "config.json").read_text())["kv_cache"])
    again = HFSource(tmp_path)
    assert again.config["kv_cache"] == entry
    model = load(tmp_path)
    attention = model.model.layers[1].self_attn
    if not is_cached_attention_module(attention):
        pytest.skip("this compressed-tensors does not know the attention of this transformers, so it reads no scale")
    assert attention.k_scale.flatten().tolist() == attention.v_scale.flatten().tolist() == scales[1]
    ours = our_perplexity(again, windows)
    assert ours != plain
    assert_agree(ours, their_perplexity(logits_of(model), windows))
