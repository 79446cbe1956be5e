"""Tile shapes of key mass, as data: by architecture, form of the cache and rows (queries times heads of a group).

    shared bytes  = [block_n, D] keys, which stay, + num_stages tiles of [block_r, D] queries, 2 bytes per number:
                    128 tokens, 64 rows and 128 channels are 32 KB + 16 KB per tile
    registers     = block_r * block_n float32 of scores: 64 per thread at 4 warps, and no accumulator besides

A program reads its keys once. 64 queries of 4 heads are 256 rows, so 256 operations per byte of keys in 16 bits.
`python -m gpu_kernels.measure` times every candidate of a row; MEASURED.md says which rows have been measured.
"""

from gpu_kernels.attention.configs import Config, Rows, find
from gpu_kernels.attention.prefill_configs import paged_form

# "wide": heads past 128 channels.
CONFIGS: dict[tuple[int, str], Rows] = {
    (80, "16 bit"): [(16, [Config(16, 128, 4, 1, 2)]), (None, [Config(64, 64, 4, 2, 2)])],
    (80, "16 bit, wide"): [(None, [Config(32, 64, 4, 2, 1)])],
    (80, "8 bit"): [(16, [Config(16, 128, 4, 1, 2)]), (None, [Config(64, 64, 4, 2, 2)])],
    (80, "8 bit, wide"): [(None, [Config(32, 64, 4, 2, 1)])],
    (90, "16 bit"): [
        (16, [Config(16, 128, 4, 1, 2), Config(16, 64, 4, 1, 4)]),
        (None, [Config(64, 128, 4, 2, 2), Config(64, 64, 4, 2, 3)]),
    ],
    (90, "16 bit, wide"): [(None, [Config(64, 64, 4, 2, 1)])],
    (90, "8 bit"): [(16, [Config(16, 128, 4, 1, 2)]), (None, [Config(64, 128, 4, 2, 2)])],
    (90, "8 bit, wide"): [(None, [Config(64, 64, 4, 2, 1)])],
}
# Not tuned for its tensor memory: Hopper's shapes.
CONFIGS |= {(100, form): rows for (arch, form), rows in CONFIGS.items() if arch == 90}
CONFIGS[100, "16 bit"] = [(most, candidates[:1]) for most, candidates in CONFIGS[90, "16 bit"]]  # 64x64 spills


def row(arch: int, is_codes: bool, head_size: int, num_rows: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS for so many queries times heads of a group.

    raises  NotImplementedError if the architecture has no rows
    """
    return find("key_mass", CONFIGS, arch, paged_form(is_codes, head_size), num_rows)
