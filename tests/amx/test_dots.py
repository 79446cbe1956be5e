"""AVX-VNNI without the machine: the emulator's dots, and the tests of the kernels with their true machine code."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amx.test_kernels import num_passed
from support import amx

import cpu_kernels
from cpu_kernels import _ext

# The kernels with dots of AVX-VNNI that trap on every processor, and the emulator that executes those.

# First bytes of the instruction: VEX's own, and one that no instruction of 64-bit code begins with.
VEX, TRAPS = 0xC4, 0x06


def trapping_emulator(folder: Path) -> Path:
    """An emulator that takes both first bytes, and says that it also executes dots that the processor has."""
    changes = {
        "decode.cpp": ("code[0] != vex3 ||", f"(code[0] != vex3 && code[0] != {TRAPS}) ||"),
        "trap.cpp": ("{ return 1; }", "{ return 2; }"),
    }
    sources = []
    for source in amx.SOURCES:
        text = source.read_text()
        if source.name in changes:
            before, after = changes[source.name]
            assert text.count(before) == 1
            text = text.replace(before, after)
        sources.append(folder / source.name)
        sources[-1].write_text(text)
    return amx.build(folder / "libtraps.so", sources, "-shared", "-fPIC", f"-I{amx.SOURCES[0].parent}")


def trapping_kernels(folder: Path) -> int:
    """A copy of the package in `folder`: each VEX-encoded vpdpbusd of its extension traps, no other byte differs.

    returns   their number
    """
    package = folder / "cpu_kernels"
    shutil.copytree(amx.ROOT / "cpu_kernels", package, ignore=shutil.ignore_patterns("csrc", "amx_emulator"))
    library = Path(_ext.__file__)
    code = bytearray(library.read_bytes())
    places = dots_of(library)
    for place in places:
        if code[place] == VEX:  # else it is one of AVX-512
            code[place] = TRAPS
    (package / library.name).write_bytes(code)
    return sum(code[place] == TRAPS for place in places)


def dots_of(library: Path) -> list[int]:
    """Where in the file each vpdpbusd begins."""
    header = subprocess.run(
        ["objdump", "-h", "-j", ".text", library], capture_output=True, text=True, check=True
    ).stdout
    address, offset = (int(part, 16) for part in header.split(".text")[1].split()[1:4:2])
    command = ["objdump", "-d", "--no-show-raw-insn", "-j", ".text", library]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(place, 16) - address + offset for place in re.findall(r"^ *([0-9a-f]+):.*\bvpdpbusd\b", listing, re.M)]


def packages() -> list[str]:
    """Where other packages are, for a Python that reads no .pth file: the project's own would come before the copy."""
    return [path for path in sys.path if path.endswith("site-packages")]


PROGRAM = Path(__file__).with_name("test_dots.cpp")
# Each has tests whose id names the instruction set.
NAMES = (
    "linear",
    "linear_tokens",
    "linear_formats",
    "linear_groups",
    "linear_reround",
    "linear_int8",
    "llm_int8",
    "moe",
    "linear_trellis",
)
KERNEL_TESTS = [f"tests/cpu_kernels/test_{name}.py" for name in NAMES]
OF_VNNI = "([avx_vnni or -avx_vnni) and not 4096"

needs_avx2 = pytest.mark.skipif("avx2" not in cpu_kernels.features(), reason="needs AVX2 around the dots")
is_whole = pytest.mark.skipif("QBENCH_CPU" in os.environ, reason="the copy runs on the whole processor")
needs_objdump = pytest.mark.skipif(not shutil.which("objdump"), reason="needs objdump")


@pytest.fixture(scope="module")
def trapping(tmp_path_factory, emulator) -> Path:
    """An emulator that also executes dots that this processor has, if they trap."""
    return trapping_emulator(tmp_path_factory.mktemp("emulator"))


@needs_avx2
@pytest.mark.parametrize("which", ["shipped", "trapping"])
def test_dots_follow_the_manual(tmp_path, emulator, trapping, which):
    program = amx.build(tmp_path / "test_dots", [PROGRAM])
    done = amx.run_emulated({"shipped": emulator, "trapping": trapping}[which], [str(program)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 4 * 16**3


@pytest.fixture(scope="module")
def run_trapping(tmp_path_factory, trapping):
    """Python on a copy of the package whose dots of AVX-VNNI all trap, and are executed by the emulator."""
    folder = tmp_path_factory.mktemp("package")
    assert trapping_kernels(folder) > 1000

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        places = [folder, amx.ROOT / "tests", amx.ROOT, *packages()]
        path = os.pathsep.join(map(str, places))
        env = {**os.environ, "PYTHONPATH": path, "LD_PRELOAD": str(trapping), **environment}
        command = [amx.PYTHON[0], "-S", "-P", *arguments]
        return subprocess.run(command, env=env, cwd=amx.ROOT, capture_output=True, text=True)

    return run


@needs_avx2
@needs_objdump
@is_whole
@pytest.mark.exhaustive("each dot is a trap: a minute")
def test_every_kernel_passes_its_tests(run_trapping):
    """faulthandler would take the signal that the emulator lives by."""
    plugins = ("-p", "no:faulthandler", "-p", "no:cacheprovider", "-p", "no:xdist")
    sample = ("-m", "not exhaustive", "--grid", "1")
    done = run_trapping("-m", "pytest", "-q", *plugins, *KERNEL_TESTS, "-k", OF_VNNI, *sample)
    assert done.returncode == 0, done.stdout + done.stderr
    assert num_passed(done.stdout) > 50
    assert "skipped" not in done.stdout


@needs_avx2
@needs_objdump
@pytest.mark.exhaustive("the copy of the extension is searched for dots: 5 s")
def test_the_self_test_lists_it_as_emulated(run_trapping):
    done = run_trapping("-m", "qbench.cli.main", "selftest", "--only", "q8_0", "--json", QBENCH_CPU="avx_vnni")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    ours = [row for row in found["rows"] if row["isa"] == "avx_vnni"]
    assert {row["op"] for row in ours} >= {"linear_q8_0"} and {row["status"] for row in ours} == {"ok, emulated"}
    assert "avx_vnni (emulated)" in found["features"]


@needs_avx2
@needs_objdump
@is_whole
@pytest.mark.exhaustive("the copy of the extension is searched for dots: 5 s")
def test_dots_that_are_executed_are_counted(run_trapping):
    """A product of whole tiles has a dot for each 32 multiply-adds."""
    code = """
import json, numpy as np, cpu_kernels
from support import amx
from support.q8_0 import packed_q8_0, random_q8_0
packed = packed_q8_0(random_q8_0(32, 64))
before = amx.counts()
packed.matmul(np.ones((12, 64), np.float32), isa="avx_vnni", path="tile")
print(json.dumps([before, amx.counts()]))
"""
    done = run_trapping("-c", code)
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    assert {name: after[name] - before[name] for name in amx.DOTS} == dict.fromkeys(amx.DOTS, 0) | {
        "vpdpbusd": 12 * 32 * 64 // 32
    }
