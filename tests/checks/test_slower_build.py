"""A compiler without the flags of the x86 kernels gives a slower build, and the set-up says so."""

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD_COMPILER = """#!/bin/bash
case " $* " in *" -mamx-int8 "*) exit 1;; esac
exec g++ "$@"
"""


@pytest.mark.exhaustive("configures the build, which takes seconds")
@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("g++"), reason="cmake and g++ build the kernels")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="there are no x86 kernels elsewhere")
def test_an_old_compiler_is_named_with_its_missing_features(tmp_path):
    compiler = tmp_path / "old"
    compiler.write_text(OLD_COMPILER)
    compiler.chmod(0o755)
    output = configured(tmp_path, compiler)
    (line,) = [line for line in output.splitlines() if "scalar kernels only" in line]
    assert "many times slower, for lack of AVX-512 and AMX flags" in line
    assert filtered(output) == f"setup: {line.removeprefix('-- ')}\n"


@pytest.mark.exhaustive("configures the build, which takes seconds")
@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("clang++"), reason="needs cmake and clang++")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="there are no x86 kernels elsewhere")
def test_clang_builds_all_kernels(tmp_path):
    assert "scalar kernels only" not in configured(tmp_path, "clang++")


def configured(folder: Path, compiler: str | Path) -> str:
    """The output of cmake with this compiler."""
    nanobind = subprocess.run(
        [sys.executable, "-m", "nanobind", "--cmake_dir"], check=True, capture_output=True, text=True
    ).stdout.strip()
    variables = {"nanobind_DIR": nanobind, "Python_EXECUTABLE": sys.executable, "CMAKE_CXX_COMPILER": compiler}
    argv = ["cmake", "-S", ROOT, "-B", folder / "build", *(f"-D{name}={value}" for name, value in variables.items())]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def filtered(output: str) -> str:
    """The lines that `make setup` shows."""
    (progress,) = re.findall(r"^PROGRESS := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    script = progress.replace("\\\n", "").replace("$$", "$").replace("\\#", "#")
    return subprocess.run(["bash", "-c", script], input=output, check=True, capture_output=True, text=True).stdout
