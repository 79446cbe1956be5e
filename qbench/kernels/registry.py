"""All kernels as they are checked, and the ops that have no result to check."""

from functools import cache

from qbench.kernels.attention import attention
from qbench.kernels.blocks import block_scores
from qbench.kernels.case import Kernel
from qbench.kernels.decode import decoders
from qbench.kernels.encode import encoders
from qbench.kernels.fused import fused_rows
from qbench.kernels.fused_steps import fused_steps
from qbench.kernels.gptq import gptq
from qbench.kernels.gram import gram
from qbench.kernels.group_quant import group_quant
from qbench.kernels.linear import linears
from qbench.kernels.linear_dense import dense_linears
from qbench.kernels.linear_trellis import trellis_linears
from qbench.kernels.mla_heads import mla_heads
from qbench.kernels.moe import experts
from qbench.kernels.router import routers
from qbench.kernels.trellis import trellis

# Functions that give the kernels to check, one family per line.
FAMILIES = (
    linears,
    dense_linears,
    trellis_linears,
    experts,
    routers,
    attention,
    mla_heads,
    fused_rows,
    fused_steps,
    encoders,
    decoders,
    group_quant,
    gptq,
    gram,
    trellis,
    block_scores,
)
# They measure the machine: their result is a rate, for which there is no oracle.
MEASUREMENTS = frozenset({"read_bandwidth", "int8_peak", "int16_peak", "bf16_peak", "fp32_peak"})


@cache
def kernels() -> tuple[Kernel, ...]:
    return tuple(kernel for family in FAMILIES for kernel in family())
