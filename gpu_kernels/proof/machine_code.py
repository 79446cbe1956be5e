"""The machine code of a cubin as counts: its instructions, and those of the loop that does the work."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import triton

BIN = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?PT?\d* )?([A-Z][\w.]*)(.*?);")
LABEL = re.compile(r"^(\.L_x_\d+):")
TARGET = re.compile(r"\.L_x_\d+")
# Instructions of the tensor cores: of a warp (HMMA, IMMA) and of a warpgroup (HGMMA, QGMMA, IGMMA).
MATRIX = ("HMMA", "IMMA", "QMMA", "HGMMA", "QGMMA", "IGMMA")
CONVERSIONS = ("F2F", "F2FP", "F2I", "I2F", "I2FP", "F2IP", "I2IP")


class Instruction(NamedTuple):
    """name with its modifiers ("LDG.E.128"), and the rest of the line"""

    name: str
    operands: str

    @property
    def kind(self) -> str:
        """The name without modifiers."""
        return self.name.partition(".")[0]

    @property
    def bytes_per_lane(self) -> int:
        """Width of a load or store: 4 unless the name has another."""
        widths = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
        return next((widths[part] for part in self.name.split(".") if part in widths), 4)


@dataclass(frozen=True, slots=True)
class MachineCode:
    """instructions  all, in order
    loop          those of the loop that does the work; all of them if the kernel has no loop
    """

    instructions: list[Instruction]
    loop: list[Instruction]

    def matrix(self) -> Counter[str]:
        """Matrix instructions of the loop by kind."""
        return Counter(one.kind for one in self.loop if one.kind in MATRIX)

    def count(self, *kinds: str) -> int:
        return sum(one.kind in kinds for one in self.loop)


def disassemble(cubin: bytes, folder: Path) -> str:
    """The text of the nvdisasm that comes with Triton."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    return subprocess.run(
        [BIN / "nvdisasm", "-c", path], capture_output=True, text=True, check=True, encoding="utf-8"
    ).stdout


def machine_code(text: str) -> MachineCode:
    """The instructions and the main loop in the text of `disassemble`."""
    found, labels = [], {}
    for line in text.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(found)
        elif told := INSTRUCTION.match(line):
            found.append(Instruction(told[1], told[2]))
    return MachineCode(found, _main_loop(found, labels))


def _main_loop(found: list[Instruction], labels: dict[str, int]) -> list[Instruction]:
    """The loop with the most matrix instructions and bytes from memory; of equal ones the shortest.

    A branch to an instruction before it closes a loop. Waits for a barrier are loops too, and do neither.
    """
    best, most = found, (0, 0, 0)
    for last, branch in enumerate(found):
        target = TARGET.search(branch.operands) if branch.kind == "BRA" else None
        if target is None or labels[target[0]] >= last:
            continue
        body = found[labels[target[0]] : last + 1]
        matrix = sum(one.kind in MATRIX for one in body)
        worth = (matrix, sum(one.bytes_per_lane for one in body if one.kind in ("LDG", "LDGSTS")), -len(body))
        if worth[:2] > (0, 0) and worth > most:
            best, most = body, worth
    return best
