"""All kernels, and the ops that have no result to check."""

from functools import cache

from qbench.kernels.case import Kernel
from qbench.kernels.decode import decoders
from qbench.kernels.encode import encoders
from qbench.kernels.fused import fused_rows
from qbench.kernels.gptq import gptq
from qbench.kernels.linear import linears

# They measure the machine: what comes out is a rate, and no oracle knows it.
MEASUREMENTS = frozenset({"read_bandwidth", "int8_peak", "fp32_peak"})


@cache
def kernels() -> tuple[Kernel, ...]:
    return (*linears(), *encoders(), *decoders(), *fused_rows(), *gptq())
