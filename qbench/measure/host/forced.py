"""Choices that the environment forces on the kernels, in place of their own."""

import os

ISA = "QBENCH_ISA"
CPU = "QBENCH_CPU"  # a processor that is pretended; it is a fact of the machine and not of a case
LINEAR_PATH = "QBENCH_LINEAR_PATH"
TILES_ONLY = "bf16"  # its value that only amx has
# The other switches, and the values that they know.
SWITCHES = {
    LINEAR_PATH: ("direct", "tile", TILES_ONLY),
    "QBENCH_F16_COMPUTE": ("bfloat16", "float32"),
    "QBENCH_K_QUANT_COMPUTE": ("int8x256", "exact"),
}


def forced() -> str | None:
    """ "QBENCH_ISA=scalar QBENCH_LINEAR_PATH=tile"; None if nothing is forced."""
    given = [f"{name}={os.environ[name]}" for name in (ISA, *SWITCHES) if os.environ.get(name)]
    return " ".join(given) or None
