"""Tile shapes of paged decode, as data: by architecture, form of the cache and rows (queries times heads of a group).

    shared bytes  = [block_r, D] queries + num_stages buffers of [2, block_n, D] keys and values, 2 bytes per number or
                  1 per code: at 64 tokens of 128 channels 32 or 16 KB per tile
    registers     = block_r * D float32 of accumulators

Latency times bandwidth of an H200 is about 23 KB per multiprocessor.
`python -m gpu_kernels.measure` times every candidate of a row; MEASURED.md says which rows have been measured.
"""

import torch

from gpu_kernels.attention.configs import Config, Rows, find

# Heads past 128 channels double everything: half the tokens.
CONFIGS: dict[tuple[int, str], Rows] = {
    (80, "16 bit"): [(16, [Config(16, 64, 4, 2, 2)]), (None, [Config(64, 64, 4, 2, 2)])],
    (80, "16 bit, wide"): [(16, [Config(16, 32, 4, 3, 2)]), (None, [Config(64, 32, 8, 3, 1)])],
    (80, "8 bit"): [(16, [Config(16, 64, 4, 3, 2)]), (None, [Config(64, 32, 4, 3, 2)])],
    (80, "8 bit, wide"): [(16, [Config(16, 32, 4, 3, 2)]), (None, [Config(64, 32, 8, 3, 1)])],
    (90, "16 bit"): [
        (16, [Config(16, 64, 4, 4, 2), Config(16, 64, 4, 2, 3), Config(16, 64, 4, 3, 2)]),
        (None, [Config(64, 64, 4, 4, 1), Config(64, 64, 4, 3, 2)]),
    ],
    (90, "16 bit, wide"): [(16, [Config(16, 32, 4, 3, 2)]), (None, [Config(64, 64, 8, 3, 1)])],
    (90, "8 bit"): [
        (16, [Config(16, 64, 4, 3, 2), Config(16, 64, 4, 4, 2), Config(16, 32, 4, 4, 3)]),
        (None, [Config(64, 32, 4, 3, 2), Config(64, 64, 4, 3, 2)]),
    ],
    (90, "8 bit, wide"): [(16, [Config(16, 32, 4, 3, 2)]), (None, [Config(64, 32, 8, 3, 1)])],
}
# int8 takes more instructions per code.
CONFIGS |= {(arch, form.replace("8 bit", "int8")): rows for (arch, form), rows in CONFIGS.items() if "8 bit" in form}
CONFIGS[90, "int8"] = [
    (16, [Config(16, 64, 4, 4, 2), Config(16, 64, 4, 3, 2)]),
    (None, [Config(64, 32, 4, 3, 2), Config(64, 64, 4, 3, 2)]),
]
# Not tuned for its tensor memory: Hopper's shapes, which fit.
CONFIGS |= {(100, form): rows for (arch, form), rows in CONFIGS.items() if arch == 90}


def row(arch: int, cache_dtype: torch.dtype, head_size: int, num_rows: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS for so many queries times heads of a group.

    raises  NotImplementedError if the architecture has no rows
    """
    form = "int8" if cache_dtype == torch.int8 else f"{8 * cache_dtype.itemsize} bit"
    form += ", wide" if head_size > 128 else ""
    return find("paged_decode", CONFIGS, arch, form, num_rows)
