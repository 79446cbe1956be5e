"""Every check of a whole model, on an artifact that has exactly that defect."""

import json

import numpy as np
import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.damage import edit_hf, edit_json, edit_manifest, rename_in_header, rewrite_tensors

from quant.errors import InputError

UP, EMBEDDING, HEAD = "model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight", "lm_head.weight"


def test_a_missing_tensor_of_a_directory(copy_of, findings):
    path = copy_of("bf16")
    rewrite_tensors(path, lambda tensors: tensors.pop(UP))
    assert findings(path) == {("structure", UP)}


def test_a_missing_part_of_a_linear(copy_of, report):
    path = copy_of("w4g32")
    rewrite_tensors(path, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight_scale"))
    (found,) = report(path).findings
    assert found.check == "structure" and "up_proj.weight_scale" in found.message


def test_a_missing_tensor_of_a_gguf_file(copy_of, findings):
    """A renamed tensor is missing under its own name."""
    path = copy_of("q4_0")
    rename_in_header(path, "blk.1.ffn_up.weight", "blk.1.ffn_xx.weight")
    assert findings(path) == {("structure", "blk.1.ffn_up.weight")}


def test_a_missing_embedding(copy_of, findings):
    path = copy_of("q4_0")
    rename_in_header(path, "token_embd.weight", "token_xxxx.weight")
    assert findings(path) == {("structure", "token_embd.weight")}


def test_a_doubled_tensor_of_a_gguf_file(copy_of, findings):
    path = copy_of("q4_0")
    rename_in_header(path, "blk.1.ffn_up.weight", "blk.0.ffn_up.weight")
    assert findings(path) == {("structure", "blk.0.ffn_up.weight"), ("structure", "blk.1.ffn_up.weight")}


def test_a_doubled_tensor_of_a_directory(copy_of, findings):
    path = copy_of("bf16")
    rename_in_header(path / "model.safetensors", UP, UP.replace("1", "0"))
    assert findings(path) == {("structure", UP.replace("1", "0")), ("structure", UP)}


def test_a_tensor_that_no_model_has(copy_of, report):
    path = copy_of("bf16")
    rewrite_tensors(path, lambda tensors: tensors.update({"model.extra.weight": tensors[UP].clone()}))
    (found,) = report(path).findings
    assert found.check == "structure" and "model.extra.weight" in found.message


def test_a_tied_head_with_a_difference_is_found(copy_of, findings):
    """A directory may keep a tied head, and then it is the embedding."""
    path = copy_of("bf16", "tied", manifest=False)
    rewrite_tensors(path, lambda tensors: tensors.update({HEAD: tensors[EMBEDDING].clone()}))
    assert findings(path) == set()
    edit_hf(path, HEAD, lambda rows: rows[3].__setitem__(5, rows[3, 5] ^ 1))
    assert findings(path) == {("tied weights", HEAD)}


def test_a_head_that_came_apart_from_its_source(copy_of, findings):
    path = copy_of("bf16", "tied", manifest=False)
    edit_json(path / "config.json", lambda config: config.update(tie_word_embeddings=False))
    rewrite_tensors(path, lambda tensors: tensors.update({HEAD: tensors[EMBEDDING].clone()}))
    assert findings(path, "tied") == set()
    rewrite_tensors(path, lambda tensors: tensors[HEAD].mul_(1.25))
    assert findings(path, "tied") == {("tied weights", HEAD)}


def test_a_manifest_of_other_tensors(copy_of, findings):
    path = copy_of("q4_0")

    def edit(manifest):
        manifest["tensors"]["model.extra.weight"] = manifest["tensors"].pop(UP)
        manifest["tensors"][EMBEDDING]["format"] = "q8_0"

    edit_json(path.with_name("artifact.gguf.qbench.json"), edit)
    assert findings(path) == {("manifest", "model.extra.weight"), ("manifest", UP), ("manifest", EMBEDDING)}


def test_experts_that_calibration_hardly_reached(copy_of, findings):
    path = copy_of("q4_0")
    experts = {"0": {"tokens": [500, 510, 0, 490], "extra": {}}, "1": {"tokens": [3, 900, 800, 700], "extra": {}}}
    manifest = path.with_name("artifact.gguf.qbench.json")
    edit_json(manifest, lambda document: document.update(calibration={"experts": experts}))
    assert findings(path) == {("expert coverage", "layer 0, expert 2"), ("expert coverage", "layer 1, expert 0")}


@pytest.mark.parametrize("container", ["gguf", "hf"])
@pytest.mark.parametrize(
    "k_scale, where",
    [([[0.1], [0.2]], None), ([[0.1], [0.0]], "model"), ([[0.1], [float("nan")]], "model")],
    ids=["sane", "zero", "nan"],
)
def test_scales_of_keys(tmp_path, findings, container, k_scale, where):
    path = write_with_kv(tmp_path, container, [[0.1], [0.2]])
    if container == "hf":
        set_k_scale(path, k_scale)
    else:
        old, new = json.dumps([[0.1], [0.2]]), json.dumps(k_scale)
        rename_in_header(path, f'"k_scale": {old}', f'"k_scale": {new.ljust(len(old))}')
    assert findings(path) == (set() if where is None else {("KV scales", where)})


def test_a_scale_of_keys_that_is_missing(tmp_path, report):
    path = write_with_kv(tmp_path, "hf", [[0.1], [0.2]])
    rewrite_tensors(path, lambda tensors: tensors.pop("model.layers.1.self_attn.k_scale"))
    (found,) = report(path).findings
    assert found.check == "structure" and "k_scale" in found.message


def test_a_scale_of_keys_far_from_the_others(tmp_path, findings):
    path = write_with_kv(tmp_path, "hf", [[0.1], [0.2], [0.15]], num_hidden_layers=3)
    edit_hf(path, "model.layers.1.self_attn.k_scale", lambda scale: scale.__setitem__((0, 0), 6553.6))
    assert findings(path) == {("KV scales", "layer 1")}


def write_with_kv(tmp_path, container, scales, **changes):
    entry = {"format": "kv-fp8-cal", "k_scale": scales, "v_scale": scales}
    config = small_config(head_dim=32, kv_cache=entry, **changes)
    out = tmp_path / ("a.gguf" if container == "gguf" else "a")
    path = write_artifact(ArraySource(config, random_weights(config)), out)
    for manifest in tmp_path.rglob("*qbench.json"):
        manifest.unlink()
    return path


def set_k_scale(path, k_scale):
    for layer, (scale,) in enumerate(k_scale):
        name = f"model.layers.{layer}.self_attn.k_scale"
        edit_hf(path, name, lambda stored, scale=scale: stored.__setitem__((0, 0), scale))


def test_folded_scales_are_no_finding(copy_of, report):
    """Weights times scales that their norm divides by: another model tensor by tensor, and the same in all."""
    path = copy_of("bf16", manifest=False)

    def fold(tensors):
        scales = 0.5 + np.arange(128) / 64
        tensors["model.layers.0.input_layernorm.weight"].div_(tensors[UP].new_tensor(scales))
        for part in ("q_proj", "k_proj", "v_proj"):
            tensors[f"model.layers.0.self_attn.{part}.weight"].mul_(tensors[UP].new_tensor(scales))

    rewrite_tensors(path, fold)
    examined = report(path, "memory")
    assert examined.findings == [] and "norms differ" in examined.skipped["sqnr"]


def test_a_missing_or_changed_source_is_reported(copy_of, report):
    path = copy_of("q4_0")
    manifest = path.with_name("artifact.gguf.qbench.json")
    edit_manifest(manifest, lambda document: document["source"].update(fingerprint="1" * 64))
    assert "changed" in report(path).skipped["sqnr"]
    edit_manifest(manifest, lambda document: document["source"].update(spec="no/such/model"))
    assert "no/such/model" in report(path).skipped["sqnr"]
    assert report(path).findings == []


def test_bad_input_is_no_finding(copy_of, report, tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        report(tmp_path / "none.gguf")
    with pytest.raises(InputError, match="wide is not what"):
        report(copy_of("q4_0"), "wide")
    (tmp_path / "text.gguf").write_text("x" * 100)
    with pytest.raises(InputError, match="no GGUF"):
        report(tmp_path / "text.gguf")
    manifest = tmp_path / "artifact.gguf.qbench.json"
    manifest.write_text("{}")
    with pytest.raises(InputError, match="manifest"):
        report(tmp_path / "artifact.gguf")
