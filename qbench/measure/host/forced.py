"""What the environment forces the kernels to, in place of what they would choose here."""

import os

ISA = "QBENCH_ISA"
CPU = "QBENCH_CPU"  # a processor that is pretended; it is a fact of the machine and not of a case
# The switches beside it, and the values that they know.
SWITCHES = {
    "QBENCH_LINEAR_PATH": ("direct", "tile"),
    "QBENCH_F16_COMPUTE": ("bfloat16", "float32"),
    "QBENCH_K_QUANT_COMPUTE": ("int8x256", "exact"),
}


def forced() -> str | None:
    """ "QBENCH_ISA=scalar QBENCH_LINEAR_PATH=tile"; None where nothing is."""
    given = [f"{name}={os.environ[name]}" for name in (ISA, *SWITCHES) if os.environ.get(name)]
    return " ".join(given) or None
