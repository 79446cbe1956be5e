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
from gpu_kernels.proof.machine_code import CONVERSIONS, Instruction, MachineCode, disassemble, machine_code
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
LANES, SCHEDULERS = 32, 4
# Cycles of a multiprocessor per warp instruction: four schedulers issue one each; conversions run on 64 lanes, and
# exponentials and reciprocals on 16 (CUDA's programming guide, throughput of native arithmetic instructions, 9.0).
ISSUE, CONVERSION, SPECIAL = 1 / SCHEDULERS, LANES / 64, LANES / 16
SHARED_BYTES_PER_CYCLE = 128
# 4.3e12 bytes per second over 132 multiprocessors at 1.75 GHz.
MEMORY_BYTES_PER_CYCLE = 18.6
# Dense operations per cycle of the tensor cores of a multiprocessor, in 16 bits; in 8 bits twice as many.
MATRIX_OPS_PER_CYCLE = 4096


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
work. "At most" is a bound from instruction counts on an H200 (proof/audit.py), not a measurement. The last column
has the time of the busiest other unit, as a share of the time of the memory or the tensor cores.

{head}{chr(10).join(rows)}
"""


def made_with() -> str:
    """The version of Triton that made the kept table; "" without a table."""
    kept = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    return kept.partition("with Triton ")[2].partition(" ")[0]


def main() -> None:
    FILE.write_text(text([row for op in all_ops() for row in table(problems_of(op))]), encoding="utf-8")


def matrix_ops(one: Instruction) -> int:
    """Multiplications and additions of one warp's matrix instruction; 0 for other instructions.

    HMMA.16816 is 16 x 8 x 16, IMMA.16832 is 16 x 8 x 32; a warpgroup's HGMMA.64x128x16 is issued by four warps.
    """
    if one.kind in ("HGMMA", "QGMMA", "IGMMA"):
        m, n, k = map(int, one.name.split(".")[1].split("x"))
        return 2 * m * n * k // 4
    if one.kind in ("HMMA", "IMMA", "QMMA"):
        shape = one.name.split(".")[1]  # "16816": m in two digits, n in one, k in the rest
        return 2 * int(shape[:2]) * int(shape[2]) * int(shape[3:])
    return 0


def _bytes(loop: Iterable[Instruction], *kinds: str) -> int:
    """Bytes that all lanes of a warp move."""
    return sum(LANES * one.bytes_per_lane for one in loop if one.kind in kinds)


def _matrix_bytes(one: Instruction) -> int:
    """LDSM and STSM move 128 bytes per 8 x 8 matrix."""
    return 128 * int(one.name[-1]) if one.name[-1].isdigit() and one.name[-2] == "." else 128


def cycles(code: MachineCode) -> dict[str, float]:
    """Cycles of a multiprocessor that each unit needs for one warp's pass through the loop, if nothing ever waits."""
    loop = code.loop
    products = sum(matrix_ops(one) / (1 if one.kind in ("HGMMA", "HMMA") else 2) for one in loop)
    shared = _bytes(loop, "LDS", "STS", "LDGSTS")
    shared += sum(_matrix_bytes(one) for one in loop if one.kind in ("LDSM", "STSM"))
    return {
        "issue": len(loop) * ISSUE,
        "conversions": code.count(*CONVERSIONS) * CONVERSION,
        "special": code.count("MUFU") * SPECIAL,
        "shared memory": shared / SHARED_BYTES_PER_CYCLE,
        "tensor cores": products / MATRIX_OPS_PER_CYCLE,
        "memory": _bytes(loop, "LDG", "LDGSTS") / MEMORY_BYTES_PER_CYCLE,
    }


def bound(code: MachineCode, is_bandwidth: bool) -> tuple[float, str]:
    """(the largest share of the bandwidth, or of the tensor cores, that the loop can reach; the busiest other unit).

    Loads count in full even if the L2 or a mask serves some, so a bound of the bandwidth may be too
    high, never too low.
    """
    each = cycles(code)
    goal = each.pop("memory" if is_bandwidth else "tensor cores")
    each.pop("memory", None)  # a product reads its tiles again out of the L2
    unit = max(each, key=each.__getitem__)
    return min(1.0, goal / each[unit]), f"{unit}, {each[unit] / goal:.0%}" if goal else unit


if __name__ == "__main__":
    main()
