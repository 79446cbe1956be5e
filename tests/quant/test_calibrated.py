"""Calibrations as manifests and files of statistics keep them: the same JSON after reading and writing."""

import json

import pytest

from quant.artifacts.manifest import Manifest
from quant.calibrated import CalibrationKey, ImatrixCalibration, TextCalibration

TEXT = {
    "text": "generated",
    "asked_samples": 128,
    "seed": 7,
    "samples": 4,
    "length": 64,
    "sha256": "1" * 64,
    "on": "quantized",
    "min_expert_tokens": None,
    "arithmetic": "bf16",
}
FILE = {**dict(list(TEXT.items())[:3]), "text_sha256": "2" * 64, **dict(list(TEXT.items())[3:])}
IMATRIX = {"imatrix": "a.gguf", "sha256": "3" * 64}
OLD = {key: value for key, value in TEXT.items() if key != "arithmetic"}


def manifest(calibration):
    return {
        "schema": 1,
        "recipe": "gptq-w4g128",
        "recipe_document": None,
        "method": "gptq",
        "options": {"damp": 0.01},
        "kv": None,
        "calibration": calibration,
        "seed": 7,
        "container": "hf",
        "source": {"spec": "ref:llama", "fingerprint": "4" * 64},
        "versions": {"numpy": "2.0", "torch": None},
        "size_bytes": 10,
        "num_weights": 20,
        "bits_per_weight": 4.0,
        "bits_per_weight_by_part": {"embedding": 16.0, "head": None, "linears": 4.0, "vectors": 32.0},
        "tensors": {"x": {"format": "w4g128", "shape": [2, 128], "size_bytes": 10, "sha256": "5" * 64}},
    }


@pytest.mark.parametrize("by", [TEXT, FILE, IMATRIX, OLD], ids=["text", "text of a file", "imatrix", "no arithmetic"])
def test_a_manifest_is_written_as_it_was_read(by):
    experts = {"0": {"tokens": [3, 4], "extra": {"1": 2}}}
    for calibration in ({**by, "experts": experts, "remarks": {"x": "few"}}, {**by, "experts": None, "remarks": {}}):
        document = manifest(calibration)
        assert json.dumps(Manifest.from_json(document).to_json()) == json.dumps(document)
    assert json.dumps(Manifest.from_json(manifest(None)).to_json()) == json.dumps(manifest(None))


def test_the_kind_of_a_calibration_is_known_by_its_keys():
    read = [CalibrationKey.from_json({"model": "m", "calibration": by}).calibration for by in (TEXT, OLD, IMATRIX)]
    assert [type(one) for one in read] == [TextCalibration, TextCalibration, ImatrixCalibration]
    assert read[1].arithmetic == "fp32"


def test_a_manifest_of_another_version_keeps_unknown_keys():
    document = {key: value for key, value in manifest(TEXT | {"new": 1}).items() if key != "kv"} | {"later": [1]}
    read = Manifest.from_json(document)
    assert read.lacks == {"kv", "files", "digest"} and read.to_json() == document


@pytest.mark.parametrize("key", ["recipe", "source", "tensors"])
def test_a_manifest_without_its_essentials_is_ignored(key):
    document = {name: value for name, value in manifest(None).items() if name != key}
    with pytest.raises(ValueError, match=f"Manifest lacks {key}"):
        Manifest.from_json(document)


def test_two_keys_differ_by_name():
    one = CalibrationKey(model="a", recipe="r", calibration=TextCalibration.from_json(TEXT))
    other = CalibrationKey(model="b", calibration=ImatrixCalibration.from_json(IMATRIX))
    assert one.unlike(other) == ["model", "recipe", "calibration"] and one.unlike(one) == []
