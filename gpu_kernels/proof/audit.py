"""Table of the machine code of every timed problem on sm_90: `python -m gpu_kernels.proof.audit` writes AUDIT.md.

No GPU is needed. Each row is a launch in one configuration; counts are of the loop that does the work, per warp.
"""

import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import triton

from gpu_kernels.launch import Launch
from gpu_kernels.proof.compile import compile_launch, resource_usage, source
from gpu_kernels.proof.loop_bounds import LANES, bound, matrix_ops
from gpu_kernels.proof.machine_code import CONVERSIONS, MachineCode, disassemble, machine_code
from gpu_kernels.proof.problems import Problem, all_ops, problems_of

FILE = Path(__file__).parents[1] / "AUDIT.md"
ARCH = 90
# A multiprocessor of sm_90 has 32-bit registers, dealt in 256 per warp, and bytes, of which a program takes 1 KB more.
REGISTERS, REGISTER_UNIT, SHARED, SHARED_OF_PROGRAM, WARPS = 65536, 256, 228 * 1024, 1024, 64
COLUMNS = (
    "op", "problem", "kernel, tile", "registers", "spilled", "shared KB", "warps per multiprocessor", "instructions",
    "matrix", "128-bit loads", "narrow loads", "asynchronous", "TMA", "conversions per 1,000 operations", "at most",
    "busiest other unit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Audited:
    """One launch of a problem."""

    problem: Problem
    launch: Launch


def audited(problems: Iterable[Problem]) -> list[Audited]:
    """Every different launch of the timed problems, with the first problem that has it."""
    found = {}
    for problem in problems:
        for launch in problem.launches(ARCH) if problem.is_timed else ():
            found.setdefault((source(launch, ARCH).hash(), str(launch.options)), Audited(problem, launch))
    return list(found.values())


def line(each: Audited) -> str:
    """The row of the table."""
    compiled = compile_launch(each.launch, ARCH)
    with tempfile.TemporaryDirectory() as folder:
        usage = resource_usage(compiled.asm["cubin"], Path(folder))
        code = machine_code(disassemble(compiled.asm["cubin"], Path(folder)))
    warps = each.launch.num_warps
    share, unit = bound(code, each.problem.bound == "bandwidth")
    goal = "bandwidth" if each.problem.bound == "bandwidth" else "tensor cores"
    matrix = code.matrix()
    cells = (
        f"`{each.problem.op.name}`", each.problem.label, tile(each.launch), usage["REG"], usage["STACK"],
        compiled.metadata.shared // 1024, warps * programs(usage["REG"], warps, compiled.metadata.shared),
        len(code.loop), ", ".join(f"{count} {kind}" for kind, count in sorted(matrix.items())) or "0",
        loads(code, 16), code.count("LDG") - loads(code, 16), code.count("LDGSTS"), code.count("UTMALDG", "UBLKCP"),
        conversions(code), f"{share:.0%} of {goal}", unit,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def tile(launch: Launch) -> str:
    """The kernel, its blocks, warps and stages."""
    blocks = [str(value) for name, value in launch.arguments.items() if name.startswith("BLOCK_")]
    name = getattr(launch.kernel, "__name__", str(launch.kernel))
    return f"`{name}` {'x'.join(blocks)}-w{launch.num_warps}-s{launch.num_stages}"


def programs(registers: int, warps: int, shared: int) -> int:
    """The number that a multiprocessor holds at once."""
    of_warp = -(-registers * LANES // REGISTER_UNIT) * REGISTER_UNIT
    return min(REGISTERS // (of_warp * warps), SHARED // (shared + SHARED_OF_PROGRAM), WARPS // warps)


def loads(code: MachineCode, width: int) -> int:
    """Loads from memory into registers of so many bytes per lane."""
    return sum(one.kind == "LDG" and one.bytes_per_lane == width for one in code.loop)


def conversions(code: MachineCode) -> str:
    """Conversions of single lanes per 1,000 operations of the loop's matrix instructions."""
    operations = sum(map(matrix_ops, code.loop))
    return f"{1000 * LANES * code.count(*CONVERSIONS) / operations:.1f}" if operations else "-"


def table(problems: Iterable[Problem]) -> list[str]:
    with ThreadPoolExecutor(2) as pool:  # LLVM and the assembler leave Python to the other
        return list(pool.map(line, audited(problems)))


def text(rows: list[str]) -> str:
    head = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}\n"
    return f"""# Audit of the machine code

`python -m gpu_kernels.proof.audit` writes this table with Triton {triton.__version__} for sm_{ARCH}; no GPU is needed.
A row is a launch of a timed problem in one configuration. Counts are per warp and pass through the loop that does the
work. "At most" is a bound from instruction counts on an H200 (proof/loop_bounds.py), not a measurement. The last column
has the time of the busiest other unit, as a share of the time of the memory or the tensor cores.

{head}{chr(10).join(rows)}
"""


def made_with() -> str:
    """The version of Triton that made the kept table; "" without a table."""
    kept = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    return kept.partition("with Triton ")[2].partition(" ")[0]


def main() -> None:
    FILE.write_text(text([row for op in all_ops() for row in table(problems_of(op))]), encoding="utf-8")


if __name__ == "__main__":
    main()
