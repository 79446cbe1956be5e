"""`qbench verify`: artifacts made again from their manifests."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.damage import edit_hf, edit_json, edit_manifest

CALIBRATION = ("--samples", "4", "--seq-len", "32")
MIXED = """
base: q8_0
options: {effort: best}
rules:
  - {match: "*.down_proj*", format: q4_0}
  - {match: "*.layers.0.*", format: q4_0, method: gptq, options: {damp: 0.02}}
"""


@pytest.fixture
def make(qbench, small_model, token_ids, tmp_path):
    """make(recipe, *more): the artifact"""

    def quantize(recipe, *more, out="made"):
        argv = ("quantize", small_model, "--recipe", recipe, "-o", tmp_path / out, "--json", "--calibration", token_ids)
        outcome = qbench(*argv, *CALIBRATION, *more)
        assert outcome.status == 0, outcome.err
        return json.loads(outcome.out)["artifact"]

    return quantize


@pytest.mark.parametrize(
    "recipe, out",
    [
        ("q4_0", "made.gguf"),
        ("rtn-w4g128", "made"),
        *((name, "made") for name in ("rtn-w2g64", "gptq-w8g32-act", "awq-w3g32", "awq-w8g64", "awq-w2g32")),
        ("rtn-w8a8-tensor+kv-fp8", "made"),
        ("llm-int8", "made"),
        ("gptq-w4g128-act", "made"),
        ("smoothquant-w8a8-o3+kv-fp8-cal", "made"),
        ("imatrix-q4_0", "made.gguf"),
        ("rot-gptq-q4_0", "made.gguf"),
    ],
)
def test_an_artifact_is_made_again(qbench, make, recipe, out):
    outcome = qbench("verify", make(recipe, out=out))
    assert outcome.status == 0 and outcome.out.startswith("all "), outcome


def test_shards_and_best(qbench, make):
    assert qbench("verify", make("q4_0", "--best", "--max-shard-size", "300k", out="made.gguf")).status == 0


def test_a_recipe_of_rules_is_in_the_manifest(qbench, make, tmp_path):
    recipe = tmp_path / "mixed.yaml"
    recipe.write_text(MIXED)
    made = make(recipe, out="made.gguf")
    recipe.unlink()
    verified = json.loads(qbench("verify", made, "--json").out)
    assert verified == {"identical": True, "num_tensors": 21, "differing": {}, "files": {}, "versions": {}}


def test_a_flipped_bit_is_named(qbench, make):
    made = make("rtn-w4g128")
    name = "model.layers.1.mlp.up_proj.weight"
    edit_hf(Path(made), f"{name}_packed", lambda packed: packed[3].__setitem__(2, packed[3, 2] ^ 1))
    outcome = qbench("verify", made)
    assert outcome.status == 1 and f"{name}: its bytes differ" in outcome.out and "1 of 21" in outcome.out
    assert list(json.loads(qbench("verify", made, "--json").out)["differing"]) == [name]


def test_a_recipe_that_did_not_make_it(qbench, make):
    """The longer search finds other codes; another KV format is another scheme."""
    made = make("q4_0+kv-int8", out="made.gguf")
    edit_json(Path(made + ".qbench.json"), lambda manifest: manifest.update(options={"effort": "best"}))
    outcome = qbench("verify", made)
    assert outcome.status == 1 and "down_proj" in outcome.out and "layernorm" not in outcome.out
    edit_json(Path(made + ".qbench.json"), lambda manifest: manifest.update(options={}, recipe="q4_0+kv-int4"))
    outcome = qbench("verify", made)
    assert outcome.status == 1 and outcome.out.startswith("kv_cache")


def test_other_versions_are_reported(qbench, make):
    made = make("q4_0", out="made.gguf")
    edit_manifest(Path(made + ".qbench.json"), lambda manifest: manifest["versions"].update(numpy="0.1"))
    outcome = qbench("verify", made)
    assert outcome.status == 0 and outcome.out.startswith("numpy: 0.1 then, ")


@pytest.mark.parametrize(
    "name, part",
    [
        ("made.gguf", b"llama.rope.freq_base"),
        ("made.gguf", b"llama.context_length"),
        ("made.gguf", b"llama.attention.layer_norm_rms_epsilon"),
        ("made/config.json", b'"rope_theta"'),
        ("made/config.json", b'"rms_norm_eps"'),
        ("made/qbench.json", b'"versions"'),
    ],
)
def test_flipped_metadata_is_named(qbench, make, name, part):
    """One bit of a value: the second or a later byte after its key."""
    made = make("q4_0", out="made.gguf") if name == "made.gguf" else make("rtn-w8")
    file = Path(made) if name == "made.gguf" else Path(made) / Path(name).name
    data = bytearray(file.read_bytes())
    at = data.index(part) + len(part)
    # The type takes four bytes in a GGUF file; in JSON the first digit or letter is changed.
    at = at + 6 if name == "made.gguf" else next(i for i in range(at, len(data)) if chr(data[i]).isalnum())
    data[at] ^= 2  # of "1" it makes "3", which is a number too
    file.write_bytes(data)
    outcome = qbench("verify", made)
    assert outcome.status == 1 and f"{file.name}: its bytes are not those that were written" in outcome.out
    assert "1 of the artifact's files differ, in metadata" in outcome.out
    verified = json.loads(qbench("verify", made, "--json").out)
    assert not verified["identical"] and list(verified["files"]) == [file.name] and verified["differing"] == {}
    outcome = qbench("doctor", made)
    assert outcome.status == 1 and f"files: {file.name}: its bytes are not" in outcome.out


def test_a_manifest_without_digests_is_reported(qbench, make):
    made = make("q4_0", out="made.gguf")

    def forget(manifest):
        del manifest["files"], manifest["digest"]
        manifest["schema"] = 1

    edit_json(Path(made + ".qbench.json"), forget)
    outcome = qbench("verify", made)
    assert outcome.status == 0 and "metadata is not compared" in outcome.out
    assert "older version" in qbench("doctor", made).out


def test_a_source_that_moved(qbench, make, small_model, token_ids, tmp_path):
    made = make("gptq-w4g128")
    moved = shutil.move(small_model, tmp_path / "moved")
    qbench("verify", made).fails_with(str(small_model), "not there")
    assert qbench("verify", made, "--source", moved).status == 0
    ids = shutil.move(token_ids, tmp_path / "other.npy")
    qbench("verify", made, "--source", moved).fails_with("ids.npy")
    assert qbench("verify", made, "--source", moved, "--calibration", ids).status == 0


def test_a_source_that_changed(qbench, make, small_model):
    made = make("q4_0", out="made.gguf")
    edit_hf(small_model, "model.norm.weight", lambda norm: norm.__imul__(2))
    qbench("verify", made).fails_with("changed", "fingerprint", "--source")


def test_a_calibration_that_changed(qbench, make, token_ids):
    made = make("gptq-w4g128")
    np.save(token_ids, np.arange(300))
    qbench("verify", made).fails_with("ids.npy", "changed", "--calibration")


def test_an_importance_matrix_replaces_the_text(qbench, make, small_model, tmp_path):
    matrix = tmp_path / "imatrix.gguf"
    made = make("imatrix-q4_0", "--export-imatrix", matrix, "--calibrate-on", "original", out="first.gguf")
    again = tmp_path / "made.gguf"
    argv = ("quantize", small_model, "--recipe", "imatrix-q4_0", "-o", again, "--imatrix", matrix)
    assert qbench(*argv).status == 0
    assert again.read_bytes() != Path(made).read_bytes(), "calibrated on the quantized layers before, or the originals"
    assert qbench("verify", again).status == 0
    moved = shutil.move(matrix, tmp_path / "moved.gguf")
    qbench("verify", again).fails_with("imatrix.gguf", "cannot")
    assert qbench("verify", again, "--calibration", moved).status == 0
    other = tmp_path / "other.gguf"
    make("imatrix-q4_0", "--export-imatrix", other, "--seed", "1", out="third.gguf")
    qbench("verify", again, "--calibration", other).fails_with("other.gguf", "changed", "--calibration")


@pytest.mark.parametrize("key", ["recipe", "source", "calibration", "fingerprint", "asked_samples"])
def test_a_manifest_that_lacks_something(qbench, make, key):
    made = make("gptq-w4g128")

    def drop(manifest):
        for part in (manifest, manifest["source"], manifest["calibration"]):
            part.pop(key, None)

    edit_json(Path(made) / "qbench.json", drop)
    qbench("verify", made).fails_with("manifest", key)


def test_without_a_manifest(qbench, make, tmp_path):
    made = make("q4_0", out="made.gguf")
    Path(made + ".qbench.json").unlink()
    qbench("verify", made).fails_with("no manifest", "doctor")
    qbench("verify", tmp_path / "none.gguf").fails_with("none.gguf")
    Path(made + ".qbench.json").write_text("{}")
    qbench("verify", made).fails_with("manifest", "recipe")
