"""Every check of a tensor, on an artifact that has exactly that defect."""

import numpy as np
import pytest
from support.architectures import GGUF_KINDS, KINDS
from support.damage import edit_gguf, edit_hf, rewrite_tensors

from quant.formats.bits import pack_int32, unpack_int32

UP, GATE = "model.layers.1.mlp.up_proj", "model.layers.1.mlp.gate_proj"
GGUF_UP = "blk.1.ffn_up.weight"
HEALTHY = [
    "q8_0",
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "iq4_nl",
    "mxfp4",
    "bf16",
    "w8",
    "w4g32",
    "w3g64-asym",
    "w8a8",
    "llm-int8",
]


@pytest.mark.parametrize("fmt", HEALTHY)
def test_an_artifact_as_it_was_written_is_healthy(made, report, fmt):
    packing = "bitsandbytes" if fmt == "llm-int8" else "compressed-tensors"
    examined = report(made(fmt, "memory", packing))
    assert examined.findings == []
    assert "sqnr" not in examined.skipped and "hash" not in examined.skipped
    assert {tensor.name: tensor.format for tensor in examined.tensors}[f"{UP}.weight"] == fmt


@pytest.mark.parametrize("fmt", ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"])
def test_super_blocks_are_healthy(made, report, fmt):
    examined = report(made(fmt, "wide"))
    assert examined.findings == []
    bits = {"q2_k": 2, "q3_k": 3, "q5_k": 5, "q6_k": 6}.get(fmt, 4)
    sqnr = {tensor.name: tensor.sqnr_db for tensor in examined.tensors}[f"{UP}.weight"]
    assert 6 * (bits - 1) < sqnr < 6.02 * bits + 2, "of Gaussian weights"


@pytest.mark.parametrize("fmt", ["w4g32", "w3g32", "w8"])
def test_the_layout_of_gptq_is_healthy(made, findings, fmt):
    assert findings(made(fmt, "memory", "gptq")) == set()


@pytest.mark.parametrize("kind, fmt", [(kind, "w8") for kind in KINDS] + [(kind, "q8_0") for kind in GGUF_KINDS])
def test_every_architecture_is_healthy(made, report, kind, fmt):
    examined = report(made(fmt, kind))
    assert examined.findings == [] and "sqnr" not in examined.skipped and "hash" not in examined.skipped


def test_a_flipped_bit_of_one_expert(copy_of, findings):
    """The expert whose bytes changed, in a stack in one GGUF tensor."""
    path = copy_of("q8_0", "qwen3moe")
    edit_gguf(path, "blk.1.ffn_up_exps.weight", "u1", lambda experts: experts[5].__setitem__(40, experts[5, 40] ^ 1))
    assert findings(path) == {("hash", "model.layers.1.mlp.experts.5.up_proj.weight")}


def test_without_a_manifest_or_source_only_values_are_looked_at(copy_of, report):
    examined = report(copy_of("q4_0", manifest=False))
    assert examined.findings == [] and {"sqnr", "hash", "expert coverage"} <= set(examined.skipped)
    assert all(tensor.sqnr_db is None for tensor in examined.tensors)


def test_nan_in_a_norm(copy_of, findings):
    path = copy_of("q4_0", manifest=False)
    edit_gguf(path, "blk.0.attn_norm.weight", "<f4", lambda norm: norm.__setitem__((3, 0), np.nan))
    assert findings(path) == {("finite", "model.layers.0.input_layernorm.weight")}


@pytest.mark.parametrize("fmt", ["q4_0", "q8_0", "iq4_nl"])
def test_inf_in_a_scale(copy_of, findings, fmt):
    path = copy_of(fmt, manifest=False)
    edit_gguf(path, GGUF_UP, "u1", lambda rows: rows[5].__setitem__(slice(0, 2), [0x00, 0x7C]))
    assert findings(path) == {("finite", f"{UP}.weight"), ("scale range", f"{UP}.weight")}


def test_codes_at_the_ends(copy_of, findings):
    """Scales four times too small: most codes are clipped."""
    path = copy_of("w4g32", manifest=False)

    def clip(packed):
        q = unpack_int32(packed, 4, 128)
        packed[:] = pack_int32(np.clip(q.astype(np.int16) * 4, -8, 7).astype(np.int8), 4)

    edit_hf(path, f"{UP}.weight_packed", clip)
    assert findings(path) == {("saturation", f"{UP}.weight")}


@pytest.mark.parametrize("scale", [0.0, -0.01, 300.0], ids=["zero", "negative", "far from the others"])
def test_a_scale_out_of_range(copy_of, findings, scale):
    path = copy_of("w4g32", manifest=False)
    edit_hf(path, f"{UP}.weight_scale", lambda scales: scales.__setitem__((7, 1), scale))
    assert findings(path) == {("scale range", f"{UP}.weight")}


@pytest.mark.parametrize("scale, found", [(np.inf, "finite"), (1e-38, "scale range")])
def test_a_scale_of_llm_int8(copy_of, findings, scale, found):
    path = copy_of("llm-int8", "memory", "bitsandbytes", manifest=False)
    edit_hf(path, f"{UP}.SCB", lambda scales: scales.__setitem__(slice(1, 250), scale))
    assert found in {check for check, _ in findings(path)}


def test_a_flipped_exponent_bit_of_a_float(copy_of, findings):
    path = copy_of("bf16", manifest=False)
    edit_hf(path, "model.embed_tokens.weight", lambda rows: rows[7].__setitem__(5, rows[7, 5] | 0x4000))
    assert findings(path) == {("scale range", "model.embed_tokens.weight")}


def test_a_scale_that_no_format_holds_is_reported(copy_of, findings):
    path = copy_of("w8a8", manifest=False)
    edit_hf(path, f"{UP}.weight_scale", lambda scales: scales.__setitem__((0, 0), np.nan))
    assert findings(path) == {("readable", f"{UP}.weight")}


@pytest.mark.parametrize("fmt", ["bf16", "w4g32"])
def test_tensors_that_were_swapped(copy_of, findings, fmt):
    path = copy_of(fmt, manifest=False)

    def swap(tensors):
        for name in [name for name in tensors if name.startswith(f"{UP}.")]:
            other = name.replace(UP, GATE)
            tensors[name], tensors[other] = tensors[other], tensors[name]

    rewrite_tensors(path, swap)
    assert findings(path, "memory") == {("sqnr", f"{UP}.weight"), ("sqnr", f"{GATE}.weight")}
    assert findings(path) == set(), "each looks well by itself"


def test_a_row_with_the_wrong_sign(copy_of, report):
    """One row of 256 costs the tensor's SQNR little, and is lost all the same."""
    path = copy_of("q4_0", manifest=False)
    edit_gguf(path, GGUF_UP, "u1", lambda rows: rows[9].reshape(-1, 18)[:, 1].__ixor__(0x80))
    (found,) = report(path, "memory").findings
    assert (found.check, found.where) == ("sqnr", f"{UP}.weight") and found.message.startswith("1 rows")


def test_a_block_of_zeros(copy_of, findings):
    path = copy_of("q4_0", manifest=False)
    edit_gguf(path, GGUF_UP, "u1", lambda rows: rows[9].__setitem__(slice(0, 2), 0))
    assert findings(path, "memory") == {("dead groups", f"{UP}.weight")}
    assert findings(path) == set(), "one block of zeros may be the model's own"


def test_many_blocks_of_zeros_are_found_without_the_source(copy_of, findings):
    path = copy_of("q4_0", manifest=False)
    edit_gguf(path, GGUF_UP, "u1", lambda rows: rows[:20].reshape(20, -1, 18)[:, :, :2].__setitem__(slice(None), 0))
    assert findings(path) == {("dead groups", f"{UP}.weight")}


@pytest.mark.parametrize("container", ["gguf", "hf"])
def test_a_flipped_bit(copy_of, findings, container):
    """The lowest bit of one code: only the hash can show it."""
    if container == "gguf":
        path = copy_of("q4_0")
        edit_gguf(path, "blk.0.attn_q.weight", "u1", lambda rows: rows[3].__setitem__(5, rows[3, 5] ^ 1))
    else:
        path = copy_of("w4g32")
        name = "model.layers.0.self_attn.q_proj.weight_packed"
        edit_hf(path, name, lambda packed: packed[3].__setitem__(2, packed[3, 2] ^ 1))
    assert findings(path) == {("hash", "model.layers.0.self_attn.q_proj.weight")}
