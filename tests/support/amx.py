"""Programs whose AMX instructions are executed by cpu_kernels/amx_emulator, and how many they executed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cpu_kernels.emulation import with_amx_emulator

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "cpu_kernels/amx_emulator").glob("*.cpp"))
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
FLAGS = ("-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{ROOT / 'cpu_kernels/csrc'}")

# Cycles from one instruction to the next of its kind, of full tiles, as Intel's optimization manual has them. The kinds
# overlap at best.
CYCLES = {"products": 16, "loads": 8, "stores": 16}

# In the order of amx::Op.
OPS = ("ldtilecfg", "sttilecfg", "tilerelease", "tilezero", "tileloadd", "tileloaddt1", "tilestored")
PRODUCTS = ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud", "tdpbf16ps")
DOTS = ("vpdpbssd", "vpdpbsud", "vpdpbusd", "vpdpbuud")

# Python with the options of this one, which say where packages come from: `make asan` has an extension of its own.
PYTHON = [sys.executable, *(["-S"] if sys.flags.no_site else []), *(["-P"] if sys.flags.safe_path else [])]


def build(out: Path, sources: list[Path], *flags: str) -> Path:
    command = [COMPILER, *flags, *FLAGS, *map(str, sources), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def run_emulated(emulator: Path, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own with the emulator preloaded, so that this one never has an emulated AMX."""
    path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    env = with_amx_emulator({**os.environ, "PYTHONPATH": path, **environment}, emulator)
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)


def run_code(emulator: Path, code: str, **environment: str):
    """The JSON in the last line of the output of `code`, run under the emulator."""
    done = run_emulated(emulator, [*PYTHON, "-c", code], **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def counts() -> dict[str, int]:
    """Instructions executed so far. For code that runs under the emulator."""
    import ctypes

    names = OPS + PRODUCTS + DOTS
    values = (ctypes.c_uint64 * len(names))()
    ctypes.CDLL(None).qbench_amx_counts(values)
    return dict(zip(names, values, strict=True))


def least_cycles(counted: dict[str, int]) -> int:
    """A bound, no measurement: cycles of the most loaded tile unit, if there were nothing else to do."""
    products = sum(counted[op] for op in PRODUCTS)
    loads, stores = counted["tileloadd"] + counted["tileloaddt1"], counted["tilestored"]
    return max(products * CYCLES["products"], loads * CYCLES["loads"], stores * CYCLES["stores"])
