"""Peak memory is that of one decoder layer, whatever the number of layers."""

import json
import os
import subprocess
import sys

import pytest
from support.data import REPO

# Prints the peak of the process above its earlier memory, in bytes.
SCRIPT = """
import json, sys
from pathlib import Path
import torch
from qbench.run.work import CalibrationWork
from qbench.calibration.write import write_quantized
from qbench.measure.host.memory import current_rss_bytes, peak_rss_bytes, reset_peak_rss
from qbench.sources import rand
from quant.artifacts import make_artifact_job
from quant.recipes import get_recipe

layers, recipe, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
torch.set_num_threads(1)
wide = {"hidden_size": 768, "intermediate_size": 2048}
rand.SHAPES["deep"] = {**rand.SHAPES["tiny"], **wide, "num_hidden_layers": layers}
options = CalibrationWork(samples=4, seq_len=64)
source = rand.RandomSource("rand:deep")
rand._quantiles()  # made once and kept
before = current_rss_bytes()
assert reset_peak_rss()
write_quantized(make_artifact_job(source, get_recipe(recipe), folder / "m.gguf"), options)
print(json.dumps(peak_rss_bytes() - before))
"""


# Every block that counts is mapped by itself, and given back when it is freed. In glibc's heap freed blocks leave gaps
# that differ by 7 % from process to process.
EXACT = {"MALLOC_MMAP_THRESHOLD_": "65536"}


def growth(layers: int, recipe: str, folder) -> int:
    command = [sys.executable, "-c", SCRIPT, str(layers), recipe, str(folder)]
    environment = {**os.environ, **EXACT}
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "layers, most",
    [(16, 1.03), pytest.param(64, 1.1, marks=pytest.mark.exhaustive("a minute; 16 layers show what grows with them"))],
)
def test_peak_memory_is_flat(tmp_path, layers, most):
    few, many = (growth(count, "imatrix-q4_0", tmp_path) for count in (4, layers))
    assert few > 4 * 768 * 2048 * 3, "less than one layer's weights in float32: nothing was measured"
    assert many <= most * few
