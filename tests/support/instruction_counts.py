"""Instructions that products execute, counted one by one: exact under any load.

`python -m support.instruction_counts` prints a table of the vector operations of tiles; `--into FILE` writes it between
the markers of a page. Run in tests/, on a processor with AVX-VNNI.
"""

import argparse
import ctypes
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from support import amx

import cpu_kernels
from cpu_kernels import _ext
from qbench.kernels.case import random_weight
from qbench.measure.records.kept_kinds import KernelCase, KernelMetrics
from qbench.measure.records.record import latest, read_files
from qbench.report.markers import replace_between_markers
from qbench.words.read import markdown_grid
from quant.formats import get_format

ROWS, FEATURES = (16, 32), 256
TOKENS = {"avx2": (20, 40), "avx_vnni": (12, 24)}  # whole tiles of AVX2's 4 and 5 and of AVX-VNNI's 3 and 6
IN_A_DOT = 32  # multiply-adds of one vpdpbusd or vpmaddubsw
FORMATS = ("q4_0", "q4_k", "q5_k", "q6_k", "q8_0", "iq4_xs")
# Operations take a vector port. Loads, broadcasts from memory and moves between registers do not.
NO_OPERATION = re.compile(r"vmov|vzeroupper|v\w*broadcast\w*\s.*\(")
MULTIPLICATION = re.compile(r"vpmadd|vpdp|vmul|vfn?m")
PORTS, MULTIPLYING = 4, 2  # of Zen 4 and 5: vector operations and multiplications that start in a cycle
MARKER, SHAPE, MANY = "tile-operations", "8192x2048", 512

Count = Callable[[Callable[[], object]], Counter[str]]


@dataclass(frozen=True, slots=True)
class Operations:
    """For 32 multiply-adds. instructions: all; vector: those that take a vector port; multiplications: of these"""

    instructions: float
    vector: float
    multiplications: float

    @property
    def bound(self) -> float:
        """Share of the int8 peak, which starts MULTIPLYING multiplications of 32 products per cycle."""
        return 1 / MULTIPLYING / max(self.vector / PORTS, self.multiplications / MULTIPLYING)


def counter(folder: Path) -> Count:
    """count(call): the kinds of instructions of the extension that a call executes in this thread"""
    built = amx.build(folder / "libsteps.so", [amx.ROOT / "tests/support/steps.cpp"], "-shared", "-fPIC")
    library = ctypes.CDLL(str(built))
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(_ext.__file__)]
    base = int(maps[0][0].split("-")[0], 16)
    begin, end = (int(part, 16) for part in next(line[0] for line in maps if "x" in line[1]).split("-"))
    kinds = kinds_of(Path(_ext.__file__))
    hits = np.zeros(end - begin, np.uint32)

    def counted(call: Callable[[], object]) -> Counter[str]:
        call()  # so that the work of a first call is over
        hits[:] = 0
        library.start_counting(ctypes.c_uint64(begin), ctypes.c_uint64(end), ctypes.c_void_p(hits.ctypes.data))
        call()
        library.stop_counting()
        found = Counter[str]()
        for place in np.flatnonzero(hits).tolist():
            for kind in kinds[place + begin - base]:
                found[kind] += int(hits[place])
        return found

    return counted


def kinds_of(library: Path) -> dict[int, tuple[str, ...]]:
    """Address -> the names of Operations that its instruction counts for."""
    command = ["objdump", "--disassemble", "--no-show-raw-insn", library]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {}
    for place, text in re.findall(r"^ *([0-9a-f]+):\t(?:\{vex\} )?(.*)$", listing, re.M):
        is_vector = text.startswith("v") and not NO_OPERATION.match(text)
        kinds = ["instructions"] + ["vector"] * is_vector + ["multiplications"] * bool(MULTIPLICATION.match(text))
        found[int(place, 16)] = tuple(kinds)
    return found


def product_counts(count: Count, name: str, isa: str) -> tuple[Operations, Operations]:
    """For 32 multiply-adds: of a tile without unpacking and rounding, and of one token with both."""
    rng = np.random.default_rng(1)
    found = {}
    for rows in ROWS:
        weight = random_weight(get_format(name), (rows, FEATURES), rng)
        packed = cpu_kernels.PackedLinear(name, weight.parts, weight.shape)
        for tokens in (1, *TOKENS[isa]):
            x = rng.standard_normal((tokens, FEATURES)).astype(np.float32)
            path = "direct" if tokens == 1 else "tile"
            found[rows, tokens] = count(lambda packed=packed, x=x, path=path: packed.matmul(x, isa=isa, path=path))
    dots, new_tokens = (ROWS[1] - ROWS[0]) * FEATURES / IN_A_DOT, TOKENS[isa][1] - TOKENS[isa][0]

    def of(kind: str) -> tuple[float, float]:
        one, few, many = (found[ROWS[1], tokens][kind] - found[ROWS[0], tokens][kind] for tokens in (1, *TOKENS[isa]))
        return (many - few) / (dots * new_tokens), one / dots

    tile, token = zip(*map(of, ("instructions", "vector", "multiplications")), strict=True)
    return Operations(*tile), Operations(*token)


def measured_share(name: str, records: Iterable[Path]) -> float | None:
    """The newest kept share of the peak of this product by AVX2 with many tokens."""
    rows = [row for row in latest(read_files(records)).values() if isinstance(row.case, KernelCase) and row.is_ok]
    for row in sorted(rows, key=lambda row: row.time, reverse=True):
        case, metrics = row.case, row.metrics
        if isinstance(case, KernelCase) and isinstance(metrics, KernelMetrics) and case.forced == "QBENCH_ISA=avx2":
            if (case.op, case.shape, case.tokens) == (f"linear_{name}", SHAPE, MANY) and metrics.contenders:
                return metrics.contenders["qbench"].share
    return None


def table(count: Count) -> str:
    heading = ["weights", "AVX2", "multiply", "bound", f"measured, {SHAPE}, M={MANY}", "AVX-VNNI", "multiply", "bound"]
    rows = []
    for name in FORMATS:
        avx2, vnni = (product_counts(count, name, isa)[0] for isa in TOKENS)
        share = measured_share(name, [amx.ROOT / "results/kernels"])
        measured = "n/a" if share is None else f"{100 * share:.0f} %"
        rows.append([name, *cells(avx2), measured, *cells(vnni)])
    return markdown_grid([heading, *rows], [False] + [True] * (len(heading) - 1))


def cells(found: Operations) -> list[str]:
    return [f"{found.vector:.2f}", f"{found.multiplications:.2f}", f"{100 * found.bound:.0f} %"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", help="page with the markers")
    into = parser.parse_args().into
    cpu_kernels.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        text = table(counter(Path(folder)))
    if into:
        replace_between_markers(into, MARKER, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
