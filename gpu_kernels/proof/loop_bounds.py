"""The most that a kernel's loop can reach on an H200, from its instruction counts alone."""

from collections.abc import Iterable

from gpu_kernels.proof.machine_code import CONVERSIONS, Instruction, MachineCode

LANES, SCHEDULERS = 32, 4
# Cycles of a multiprocessor per warp instruction: four schedulers issue one each; conversions run on 64 lanes, and
# exponentials and reciprocals on 16 (CUDA's programming guide, throughput of native arithmetic instructions, 9.0).
ISSUE, CONVERSION, SPECIAL = 1 / SCHEDULERS, LANES / 64, LANES / 16
SHARED_BYTES_PER_CYCLE = 128
# 4.3e12 bytes per second over 132 multiprocessors at 1.75 GHz.
MEMORY_BYTES_PER_CYCLE = 18.6
# Dense operations per cycle of the tensor cores of a multiprocessor, in 16 bits; in 8 bits twice as many.
MATRIX_OPS_PER_CYCLE = 4096


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
