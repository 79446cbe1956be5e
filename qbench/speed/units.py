"""The roofline's rule for operations: a job is compared with the strongest unit of the machine that could do it.

A unit is an arithmetic of an instruction set: "amx bf16". A job is named by the narrowest arithmetic that its operands
allow. The arithmetic of today's kernel plays no part, so a kernel on a weaker unit shows a small share.

    int8   linears and experts of integers, codes and blocks: activations may be rounded to int8
    int16  attention over integer keys and values: queries and softmax weights keep 16 bits
    bf16   weights, keys and values of 16 bits or float8; GPTQ's Hessian, whose inputs may be rounded
    fp32   float32 weights, keys and values; all that `--compute float32` asks for; GPTQ's factor and feedback
"""

from collections.abc import Mapping
from typing import NamedTuple

INT8, INT16, BF16, FP32 = ARITHMETICS = ("int8", "int16", "bf16", "fp32")
# Operands -> arithmetics that can do the job. A wider arithmetic takes narrower operands, and may be the faster one:
# AMX multiplies bfloat16 in tiles and int16 in vectors.
CAN_DO: Mapping[str, tuple[str, ...]] = {
    INT8: (INT8, INT16, BF16, FP32),
    INT16: (INT16, BF16, FP32),
    BF16: (BF16, FP32),
    FP32: (FP32,),
}


class Unit(NamedTuple):
    """name: instruction set and arithmetic; of a GPU, the device's name in place of the former"""

    name: str
    ops_per_s: float


def strongest(operands: str, ops_per_s: Mapping[str, float | None]) -> str | None:
    """The arithmetic that does the job fastest; None if the rate of one that could do it is unknown.

    ops_per_s   of the arithmetics that the machine has instructions for; None: could not be measured
    """
    rates = {name: ops_per_s[name] for name in CAN_DO[operands] if name in ops_per_s}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    return max(known, key=known.__getitem__) if len(known) == len(rates) else None
