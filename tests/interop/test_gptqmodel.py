"""GPTQ directories, from here to GPTQModel and back: the same tokens give the same perplexity."""

import os

import pytest
import torch
from support.artifact import write_artifact
from support.perplexity import assert_same_model

from quant.artifacts import HFSource

os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")  # it refuses to load on a machine of two cores otherwise
gptqmodel = pytest.importorskip("gptqmodel", reason="gptqmodel is not installed; `make test-interop` does")


@pytest.fixture(autouse=True)
def leave_its_logs_behind(tmp_path, monkeypatch):
    """It writes logs/ into the working directory."""
    monkeypatch.chdir(tmp_path)


def load(path):
    """Their model, on their plain torch kernel."""
    return gptqmodel.GPTQModel.load(str(path), device="cpu", backend=gptqmodel.BACKEND.TORCH).model


def logits_of(model):
    return lambda tokens: model(tokens).logits


@pytest.mark.parametrize("format_name", ["w4g32", "w4g32-asym", "w3g32", "w2g32-asym", "w8"])
def test_they_load_ours(write_model, windows, format_name):
    path = write_model(format_name, "gptq")
    assert_same_model(path, logits_of(load(path)), windows)


# In version 1 of the file a zero point of 0 borrows from its neighbour: asymmetric files are full of those.
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"bits": 4, "group_size": 32, "desc_act": True}, id="act-order"),
        pytest.param({"bits": 4, "group_size": 32, "sym": False}, id="asymmetric"),
        pytest.param({"bits": 3, "group_size": -1, "act_group_aware": False}, id="3 bits per channel"),
    ],
)
def test_we_load_theirs_and_they_load_it_again(tmp_path, reference_dir, calibration, windows, settings):
    model = gptqmodel.GPTQModel.load(str(reference_dir), gptqmodel.QuantizeConfig(device="cpu", **settings))
    texts = [{"input_ids": row.tolist(), "attention_mask": [1] * len(row)} for row in calibration]
    model.quantize(texts, batch_size=4)
    model.save(str(tmp_path / "theirs"))
    assert_same_model(tmp_path / "theirs", logits_of(load(tmp_path / "theirs")), windows)

    source = HFSource(tmp_path / "theirs")
    orders = {shared.name for info in source.tensors.values() for shared in info.shared}
    assert orders == ({"g_idx"} if settings.get("desc_act") else set())
    again = write_artifact(source, tmp_path / "ours")
    assert_same_model(again, logits_of(load(again)), windows)


def test_transformers_loads_ours(write_model, windows):
    pytest.importorskip("optimum", reason="optimum is not installed; `make test-interop` does")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    path = write_model("w4g32", "gptq")
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, device_map="cpu")
    assert_same_model(path, logits_of(model), windows)
