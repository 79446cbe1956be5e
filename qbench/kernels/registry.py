"""All kernels as they are checked, and the ops that have no result to check."""

from functools import cache

from qbench.kernels.attention import attention
from qbench.kernels.case import Kernel
from qbench.kernels.codec_ops import decoders, encoders, gram, trellis
from qbench.kernels.fused_steps import fused_steps
from qbench.kernels.gptq import gptq
from qbench.kernels.group_quant import group_quant
from qbench.kernels.layer_ops import block_scores, experts, fused_rows, routers
from qbench.kernels.linear import linears
from qbench.kernels.linear_dense import dense_linears
from qbench.kernels.linear_trellis import trellis_linears
from qbench.kernels.mla_heads import mla_heads

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
