"""GGUF's naming convention: names made, taken apart, refused."""

import gguf
import numpy as np
import pytest
from gguf.utility import size_label as size_label_of_gguf
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.memory_source import MemorySource

from quant.artifacts import GGUFSource
from quant.artifacts.gguf_general import general_metadata, identity
from quant.artifacts.gguf_name import GGUFName, encoded, name_of_model, parse_name, size_label
from quant.calibrated import TextCalibration
from quant.errors import InputError
from quant.recipes import get_recipe

# The examples of the specification.
EXAMPLES = {
    "Mixtral-8x7B-v0.1-KQ2.gguf": GGUFName("Mixtral", "8x7B", version="v0.1", encoding="KQ2"),
    "Grok-100B-v1.0-Q4_0-00003-of-00009.gguf": GGUFName("Grok", "100B", encoding="Q4_0", shard=(3, 9)),
    "Hermes-2-Pro-Llama-3-8B-v1.0-F16.gguf": GGUFName("Hermes-2-Pro-Llama-3", "8B", encoding="F16"),
    "Phi-3-mini-3.8B-ContextLength4k-instruct-v1.0.gguf": GGUFName("Phi-3-mini", "3.8B-ContextLength4k", "instruct"),
    "mtp-Qwen3-27B-v1.0-Q4_K_M.gguf": GGUFName("Qwen3", "27B", encoding="Q4_K_M", sidecar="mtp"),
    "mmproj-Qwen2-VL-7B-v1.0-F16.gguf": GGUFName("Qwen2-VL", "7B", encoding="F16", sidecar="mmproj"),
    # and further names that its grammar allows
    "Qwen2.5-0.5B-Instruct-v2.1.3-IQ4_XS.gguf": GGUFName("Qwen2.5", "0.5B", "Instruct", "v2.1.3", "IQ4_XS"),
    "Llama-7B-Story-Teller-v1.0-LoRA.gguf": GGUFName("Llama", "7B", "Story-Teller", kind="LoRA"),
    "Llama-7B-v1.0-vocab.gguf": GGUFName("Llama", "7B", kind="vocab"),
}


@pytest.mark.parametrize("text", EXAMPLES)
def test_names_of_the_specification(text):
    assert parse_name(text) == EXAMPLES[text]
    assert str(EXAMPLES[text]) == text


@pytest.mark.parametrize(
    "text",
    [
        "not-a-known-arrangement.gguf",
        "Hermes-2-Pro-Llama-3-8B-F16.gguf",  # no version: F16 could be a fine-tune
        "Llama-v1.0-Q4_0.gguf",  # no size
        "7B-v1.0.gguf",  # no base name
        "Llama-7B-v1.0-Q4_0-3-of-9.gguf",
        "Llama-7B-v1.0-Q4_0.bin",
    ],
)
def test_names_without_the_convention(text):
    with pytest.raises(InputError, match="base name, size label"):
        parse_name(text)


@pytest.mark.parametrize("number", ["00000", "00010"])
def test_an_impossible_shard_is_refused(number):
    with pytest.raises(InputError, match="numbers run from 1"):
        parse_name(f"Grok-100B-v1.0-{number}-of-00009.gguf")


@pytest.mark.parametrize(
    "num_weights, label",
    [(260_032, "260K"), (3_407_872, "3.4M"), (134_515_008, "135M"), (1_100_048_384, "1.1B"), (70_553_706_496, "71B")],
)
def test_size_labels(num_weights, label):
    assert size_label(num_weights) == label


def test_size_labels_match_the_gguf_package():
    rng = np.random.default_rng(0)
    for num_weights in (10 ** rng.uniform(3, 13.5, 2000)).astype(int).tolist():
        assert size_label(num_weights) == size_label_of_gguf(num_weights, 0, 0, 0)
        experts = num_weights * 3 // 4 // 8 * 8
        assert size_label(num_weights, 8, experts) == size_label_of_gguf(0, num_weights - experts, experts // 8, 8)


@pytest.mark.parametrize(
    "model, expected",
    [
        ("models/TinyLlama-1.1B-Chat-v1.0/", "TinyLlama-1.1B-Chat-v1.0-Q4_K_M.gguf"),
        ("hf:Qwen/Qwen2.5-0.5B-Instruct", "Qwen2.5-0.5B-Instruct-v1.0-Q4_K_M.gguf"),
        ("Mixtral-8x7b-v0.1.Q8_0.gguf", "Mixtral-8x7B-v0.1-Q4_K_M.gguf"),
        ("Grok-100B-v1.0-F16-00001-of-00009.gguf", "Grok-100B-v1.0-Q4_K_M.gguf"),
        ("ref:llama", "llama-3.4M-v1.0-Q4_K_M.gguf"),
        ("/models/my model (2)", "my model -2-3.4M-v1.0-Q4_K_M.gguf"),
        ("7B", "7B-3.4M-v1.0-Q4_K_M.gguf"),
        ("...", "model-3.4M-v1.0-Q4_K_M.gguf"),
    ],
)
def test_names_from_specs(model, expected):
    name = encoded(name_of_model(model, "3.4M"), "q4_k_m")
    assert str(name) == expected and parse_name(expected) == name


def test_recipes_that_differ_have_names_that_differ():
    names = {str(encoded(GGUFName("x", "1K"), recipe)) for recipe in ("q4_k_m", "imatrix-q4_k_m", "gptq-q4_k_m")}
    assert names == {f"x-1K-v1.0-{encoding}Q4_K_M.gguf" for encoding in ("", "IMATRIX_", "GPTQ_")}


@pytest.mark.parametrize("name", ["there", "new/"], ids=["existing folder", "trailing slash"])
def test_file_in_a_folder(tmp_path, name):
    (tmp_path / "there").mkdir()
    out = write_artifact(MemorySource(), f"{tmp_path}/{name}", recipe=get_recipe("q8_0"))
    assert out == tmp_path / name / "memory-377K-v1.0-Q8_0.gguf"
    plain = write_artifact(GGUFSource(out), out.parent)  # as it is: named after the format of most weights
    assert plain == out


def test_shards_in_a_folder(tmp_path):
    out = write_artifact(MemorySource(), tmp_path, recipe=get_recipe("q8_0"), max_shard_bytes=200_000)
    assert parse_name(out.name) == GGUFName("memory", "377K", encoding="Q8_0", shard=(1, 3))


def test_general_keys(tmp_path):
    source = MemorySource()
    source.spec = "hf:tiny/Story-378K-Chat-v1.2"
    out = write_artifact(source, tmp_path / "x.gguf", recipe=get_recipe("q4_0"))
    fields = gguf.GGUFReader(out).fields
    general = {key: field.contents() for key, field in fields.items() if key.startswith("general.")}
    assert general == {
        "general.architecture": "llama",
        "general.type": "model",
        "general.name": "Story-378K-Chat-v1.2",
        "general.basename": "Story",
        "general.finetune": "Chat",
        "general.version": "v1.2",
        "general.size_label": "378K",
        "general.file_type": int(gguf.LlamaFileType.MOSTLY_Q4_0),
        "general.quantization_version": 2,
        "general.quantized_by": "qbench",
    }


@pytest.mark.parametrize("recipe, file_type", [("q5_k_s", "Q5_K_S"), ("q5_k_m", "Q5_K_M"), ("mxfp4", "MXFP4_MOE")])
def test_file_type_of_a_mix(recipe, file_type):
    metadata = general_metadata(MemorySource(), get_recipe(recipe))
    assert metadata["general.file_type"] == gguf.LlamaFileType[f"MOSTLY_{file_type}"]


@pytest.mark.parametrize("recipe, expected", [("imatrix-q4_k_m", True), ("gptq-q4_k_m", False), ("q4_k_m", False)])
def test_a_used_matrix_is_named(recipe, expected):
    calibration = TextCalibration(
        text="stories.txt",
        asked_samples=9,
        seed=0,
        samples=7,
        seq_len=64,
        sha256="",
        on="original",
        min_expert_tokens=None,
    )
    metadata = general_metadata(MemorySource(), get_recipe(recipe), calibration)
    told = {key: value for key, value in metadata.items() if key.startswith("quantize.")}
    keys = {
        "quantize.imatrix.dataset": "stories.txt",
        "quantize.imatrix.entries_count": 14,
        "quantize.imatrix.chunks_count": 7,
    }
    assert told == (keys if expected else {})


def test_model_facts_of_a_file_are_passed_on(tmp_path):
    first = write_artifact(MemorySource(), tmp_path / "a.gguf")
    source = GGUFSource(first)
    source.metadata |= {"general.basename": "Tale", "general.author": "A. Nonymous", "general.tags": ["story", "tiny"]}
    second = write_artifact(source, tmp_path / "b.gguf", recipe=get_recipe("q8_0"))
    again = GGUFSource(second)
    said = {key: again.metadata[f"general.{key}"] for key in ("name", "author", "tags", "quantized_by")}
    assert said == {"name": "memory", "author": "A. Nonymous", "tags": ["story", "tiny"], "quantized_by": "qbench"}
    assert identity(again) == GGUFName("Tale", "377K")


def test_size_label_with_experts():
    config = small_config("qwen3moe")
    source = ArraySource(config, random_weights(config))
    one = 2 * 3 * 64 * 32  # gate, up and down of one expert in two layers
    total = sum(int(np.prod(info.shape)) for info in source.tensors.values())
    assert identity(source).size_label == f"8x{size_label(total - 7 * one)}"
