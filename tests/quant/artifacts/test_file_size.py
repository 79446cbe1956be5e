"""Bytes of files next to bytes of tensors: headers, tokenizers and arrays that formats do without are counted."""

from dataclasses import replace

import pytest
from safetensors import safe_open
from support.artifact import write_artifact

from qbench.sources import open_source
from quant.artifacts.digests import file_bytes
from quant.artifacts.manifest import MANIFEST
from quant.recipes import get_recipe
from quant.sizes import size_summary


@pytest.mark.parametrize("recipe, packing", [("rtn-w4g128", "gptq"), ("rtn-w4g128", "compressed-tensors")])
def test_all_files_of_a_directory_count(tmp_path, recipe, packing):
    folder = tmp_path / "model"
    made = replace(get_recipe(recipe), packing=packing)
    written = open_source(str(write_artifact(open_source("ref:llama"), folder, recipe=made)))
    files = [path.stat().st_size for path in folder.iterdir() if path.name != MANIFEST]
    assert file_bytes(written) == sum(files)
    with safe_open(folder / "model.safetensors", "numpy") as stored:
        more = sum(stored.get_tensor(name).nbytes for name in stored.keys() if name.endswith(("qzeros", "g_idx")))
    assert (more > 0) == (packing == "gptq")
    assert file_bytes(written) > size_summary(written.tensors).size_bytes + more


def test_all_shards_of_a_gguf_model_count(tmp_path):
    made = write_artifact(open_source("ref:llama"), tmp_path / "m.gguf", max_shard_bytes=1_000_000)
    files = [path.stat().st_size for path in tmp_path.glob("*.gguf")]
    written = open_source(str(made))
    assert len(files) > 1 and file_bytes(written) == sum(files) > size_summary(written.tensors).size_bytes


def test_random_weights_have_no_files():
    assert file_bytes(open_source("rand:tiny")) is None
