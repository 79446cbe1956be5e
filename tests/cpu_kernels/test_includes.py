"""Each .inl file names the files that it needs before it, and stops the compiler if they are missing."""

import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "cpu_kernels/csrc"
# The readers and writers of block formats are always included together, in the order that one file gives.
TOGETHER = ("block_formats/", "decode/", "encode/affine/", "encode/linear/", "encode/words.inl", "linear/")
# They need declarations, which the compiler misses by name, and no other .inl file.
ALONE = ("attention/kernels/attend_any.inl", "linear_float/kernels.inl", "linear_int8/kernels.inl")
FILES = [str(path.relative_to(CSRC)) for path in sorted(CSRC.rglob("*.inl"))]
GUARDED = [name for name in FILES if not name.startswith((*TOGETHER, *ALONE))]


@pytest.mark.parametrize("name", GUARDED)
def test_a_file_by_itself_stops_with_its_name_and_its_needs(name):
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("needs g++")
    command = [compiler, "-E", "-x", "c++", f"-I{CSRC}", str(CSRC / name)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert f'#error "{name}: ' in done.stderr
    assert "include" in done.stderr.partition(f'#error "{name}: ')[2]


def test_every_folder_of_shared_code_is_guarded():
    assert {name.partition("/")[0] for name in GUARDED} >= {"simd", "attention", "gptq", "gram", "fused", "mla"}
