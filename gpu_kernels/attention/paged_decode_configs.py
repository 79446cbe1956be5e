"""Tile shapes of paged decode, as data: by architecture, form of the cache and rows (queries times heads of a group).

    shared bytes  = [block_r, D] queries + (num_stages - 1) / 2 buffers of [2, block_n, D] keys and values, 2 bytes
                  per number: at 64 tokens of 128 channels 32 KB per tile, of codes 16 KB
    registers     = block_r * D float32 of accumulators; in 8 bits with one stage the next tile's codes too: 2 * 64 *
                  128 bytes over 128 threads are 32 per thread, of 220 in all

Latency times bandwidth of an H200 is about 23 KB a multiprocessor. Three programs with two tiles under way each hold
192 KB, and of 16 KB of codes 96 KB. In 8 bits each token costs instructions: a step of 128 tokens takes 1,079
per warp on sm_90 in e4m3, where two steps of 64 take 1,444.
`python -m gpu_kernels.measure` times every candidate of a row; MEASURED.md says which rows have been measured.
"""

import torch

from gpu_kernels.attention.configs import Config, Rows, find

# Heads past 128 channels double everything: half the tokens.
CONFIGS: dict[tuple[int, str], Rows] = {
    (80, "16 bit"): [(16, [Config(16, 64, 4, 5, 2)]), (None, [Config(64, 64, 4, 5, 1)])],
    (80, "16 bit, wide"): [(16, [Config(16, 32, 4, 5, 2)]), (None, [Config(64, 32, 8, 5, 1)])],
    (80, "8 bit"): [(16, [Config(16, 64, 4, 1, 2)]), (None, [Config(64, 32, 4, 1, 2)])],
    (80, "8 bit, wide"): [(16, [Config(16, 32, 4, 1, 2)]), (None, [Config(64, 32, 8, 1, 1)])],
    (90, "16 bit"): [
        (16, [Config(16, 64, 4, 5, 3), Config(16, 128, 4, 5, 1), Config(16, 64, 4, 7, 2)]),
        (None, [Config(64, 64, 4, 5, 2), Config(64, 128, 4, 5, 1)]),
    ],
    (90, "16 bit, wide"): [(16, [Config(16, 32, 4, 5, 2)]), (None, [Config(64, 64, 8, 5, 1)])],
    (90, "8 bit"): [
        (16, [Config(16, 128, 4, 5, 2), Config(16, 64, 4, 5, 3), Config(16, 64, 4, 1, 2)]),
        (None, [Config(64, 64, 4, 5, 2), Config(64, 128, 4, 5, 1), Config(64, 32, 4, 1, 2)]),
    ],
    (90, "8 bit, wide"): [
        (16, [Config(16, 32, 4, 5, 3), Config(16, 32, 4, 1, 2)]),
        (None, [Config(64, 64, 8, 5, 1), Config(64, 32, 8, 1, 1)]),
    ],
}
# int8 takes more registers to convert: 128 tokens at once spill.
CONFIGS |= {(arch, form.replace("8 bit", "int8")): rows for (arch, form), rows in CONFIGS.items() if "8 bit" in form}
CONFIGS[90, "int8"] = [
    (16, [Config(16, 64, 4, 5, 3), Config(16, 64, 4, 1, 2)]),
    (None, [Config(64, 64, 4, 5, 2), Config(64, 32, 4, 1, 2)]),
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
