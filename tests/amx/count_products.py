"""Runs one product of each format whose kernel has tiles, and prints the emulator's counts. See test_counts.py."""

import json

import numpy as np
from support import amx

import cpu_kernels
from qbench.kernels.case import random_weight
from qbench.kernels.linear import BF16, fixed_paths
from quant.formats import TrellisFormat, get_format

SHAPE = (48, 64, 512)  # tokens, output rows, input features: whole tiles of every kind


def count(format_name: str, path: str, num_tokens: int, num_rows: int, row_size: int) -> dict[str, int]:
    rng = np.random.default_rng(1)
    fmt = get_format(format_name)
    if isinstance(fmt, TrellisFormat):
        num_rows += -num_rows % 16  # it has whole panels alone
    qtensor = random_weight(fmt, (num_rows, row_size), rng)
    packed = cpu_kernels.PackedLinear(format_name, qtensor.parts, qtensor.shape)
    x = rng.standard_normal((num_tokens, row_size)).astype(np.float32)
    before = amx.counts()
    packed.matmul(x, isa="amx", path=path)
    assert packed.last_isa == "amx"
    return {op: value - before[op] for op, value in amx.counts().items()}


def tile_path(format_name: str) -> str:
    """The path of tiles: of codes in blocks and groups, and of trellis codes, those of bfloat16."""
    return BF16 if BF16 in fixed_paths(format_name) else "tile"


if __name__ == "__main__":
    ops = [row["op"] for row in cpu_kernels.op_table() if row["impl"] == "amx"]
    formats = [op.removeprefix("linear_") for op in ops if op.startswith("linear_") and op != "linear_llm_int8"]
    shapes = (SHAPE, (37, 40, 512))
    print(json.dumps({name: [count(name, tile_path(name), *shape) for shape in shapes] for name in formats}))
