"""The kernels with dots of AVX-VNNI that trap on every processor, and the emulator that executes those."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from support import amx

from cpu_kernels import _ext

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
