"""The identity of a model: GGUF's general.* keys and the file's name, from the metadata of its source.

source   ggml, docs/gguf.md, "General metadata"
"""

from dataclasses import replace
from math import prod

import gguf

from quant.artifacts.gguf_cursor import Written
from quant.artifacts.gguf_name import GGUFName, encoded, name_of_model, size_label
from quant.calibrated import Calibration, ImatrixCalibration, TextCalibration
from quant.formats import BlockFormat
from quant.models import ModelConfig, expected_tensors, split_name
from quant.recipes import Recipe
from quant.recipes.llama_mix import LlamaMix
from quant.recipes.roles import is_decoder_linear
from quant.sizes import num_weights
from quant.source import Source

# general.* keys that speak of the file rather than of the model.
OF_THE_FILE = {
    f"general.{word}"
    for word in ("architecture", "alignment", "file_type", "quantization_version", "quantized_by", "type")
}


def identity(source: Source) -> GGUFName:
    """Name, size, fine-tune and version: as a GGUF file's metadata says, else as the spec does."""
    name = name_of_model(source.spec, _size_label(source))
    said = {key: value for key, value in _said(source).items() if isinstance(value, str)}
    if "general.basename" in said:
        name = replace(name_of_model(said["general.basename"], name.size_label), version=name.version)
        name = replace(name, fine_tune=said.get("general.finetune"))
    return replace(name, version=said.get("general.version", name.version))


def file_name(source: Source, recipe: Recipe | None) -> str:
    """The name of the file that `recipe` makes of the model; without one, of the model as it is."""
    weights = {info.format: 0 for info in source.tensors.values()}
    for info in source.tensors.values():
        weights[info.format] += prod(info.shape)
    return str(encoded(identity(source), recipe.name if recipe else max(weights, key=weights.__getitem__)))


def general_metadata(
    source: Source, recipe: Recipe | None, calibration: Calibration | None = None
) -> dict[str, Written]:
    """The general.* keys of a file: those of a GGUF source, and those that follow from its name and size.

    calibration   as the manifest describes it; a recipe by importance then has llama.cpp's quantize.imatrix.* too
    """
    name = identity(source)
    metadata: dict[str, Written | None] = {
        "general.type": "model",
        "general.basename": name.base_name,
        "general.finetune": name.fine_tune,
        "general.version": name.version,
        "general.size_label": name.size_label,
        "general.quantized_by": "qbench" if recipe else None,
        **_said(source),
    }
    if recipe is not None and isinstance(recipe.policy, LlamaMix):
        own = BlockFormat.registered[recipe.policy.default].gguf_file_type  # of a mix that llama.cpp has not
        metadata["general.file_type"] = int(gguf.LlamaFileType.__members__.get(f"MOSTLY_{recipe.policy.label}", own))
    if calibration is not None and recipe is not None and "imatrix" in recipe.make_method().needs:
        metadata |= _imatrix_keys(source, calibration)
    return {key: value for key, value in metadata.items() if value is not None}


def _imatrix_keys(source: Source, calibration: Calibration) -> dict[str, Written | None]:
    """As llama-quantize says which matrix it used; a matrix of this very run has no file."""
    expected = expected_tensors(ModelConfig.of(source))
    text = calibration if isinstance(calibration, TextCalibration) else None
    return {
        "quantize.imatrix.file": calibration.imatrix if isinstance(calibration, ImatrixCalibration) else None,
        "quantize.imatrix.dataset": None if text is None else text.text,
        "quantize.imatrix.entries_count": len(
            {expected[name].gguf_name for name in expected if is_decoder_linear(name)}
        ),
        "quantize.imatrix.chunks_count": None if text is None else text.samples,
    }


def _size_label(source: Source) -> str:
    moe = ModelConfig.of(source).moe
    of_experts = sum(prod(info.shape) for name, info in source.tensors.items() if split_name(name)[2] is not None)
    return size_label(num_weights(source.tensors), moe.num_experts if moe else 0, of_experts)


def _said(source: Source) -> dict[str, str | list[str]]:
    """The general.* texts of a GGUF file, where the source is one."""
    metadata = getattr(source, "metadata", {})
    return {
        key: value
        for key, value in metadata.items()
        if key.startswith("general.") and key not in OF_THE_FILE and isinstance(value, str | list) and value
    }
