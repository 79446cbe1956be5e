"""Tile shapes of paged decode, as data: by architecture, form of the cache and rows (queries times heads of a group).

    shared bytes  = [block_r, D] queries + (num_stages - 1) / 2 buffers of [2, block_n, D] keys and values, 2 bytes per
                  number: at 64 tokens of 128 channels 32 KB per tile
    registers     = block_r * D float32 of accumulators; in 8 bits the next tile's codes too: 2 * 64 * 128 bytes over
                  128 threads are 32 per thread, of 220 in all

Latency times bandwidth of an H200 is about 23 KB a multiprocessor. Three programs with two tiles under way each hold
192 KB, and two with one of 16 KB of codes 32 KB.
`python -m gpu_kernels.measure` times every candidate of a row; MEASURED.md says which rows have been measured.
"""

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
        (16, [Config(16, 64, 4, 1, 2), Config(16, 128, 8, 1, 1)]),
        (None, [Config(64, 32, 4, 1, 2)]),
    ],
    (90, "8 bit, wide"): [(16, [Config(16, 32, 4, 1, 2)]), (None, [Config(64, 32, 8, 1, 1)])],
}
# Not tuned for its tensor memory: Hopper's shapes, which fit.
CONFIGS |= {(100, form): rows for (arch, form), rows in CONFIGS.items() if arch == 90}


def row(arch: int, is_codes: bool, head_size: int, num_rows: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS for so many queries times heads of a group.

    raises  NotImplementedError if the architecture has no rows
    """
    form = ("8 bit" if is_codes else "16 bit") + (", wide" if head_size > 128 else "")
    return find("paged_decode", CONFIGS, arch, form, num_rows)
