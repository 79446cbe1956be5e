"""Peak memory is that of one decoder layer, whatever the number of layers."""

import json
import subprocess
import sys

import pytest
from support.data import REPO

# Prints what the process held at most above what it held before, in bytes.
SCRIPT = """
import json, sys
from pathlib import Path
import torch
from qbench.calibration.options import CalibrationOptions
from qbench.calibration.write import write_quantized
from qbench.harness.host.memory import current_rss_bytes, peak_rss_bytes, reset_peak_rss
from qbench.sources import rand
from quant.recipes import get_recipe

layers, recipe, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
torch.set_num_threads(1)
wide = {"hidden_size": 768, "intermediate_size": 2048}
rand.SHAPES["deep"] = {**rand.SHAPES["tiny"], **wide, "num_hidden_layers": layers}
options = CalibrationOptions(samples=4, length=64)
source = rand.RandomSource("rand:deep")
rand._quantiles()  # made once and kept
before = current_rss_bytes()
assert reset_peak_rss()
write_quantized(source, folder / "m.gguf", get_recipe(recipe), options)
print(json.dumps(peak_rss_bytes() - before))
"""


def growth(layers: int, recipe: str, folder) -> int:
    command = [sys.executable, "-c", SCRIPT, str(layers), recipe, str(folder)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


@pytest.mark.parametrize("recipe", ["imatrix-q4_0"])
def test_peak_memory_is_flat(tmp_path, recipe):
    four = growth(4, recipe, tmp_path)
    assert four > 4 * 768 * 2048 * 3, "less than one layer's weights in float32: nothing was measured"
    assert growth(16, recipe, tmp_path) <= 1.1 * four
