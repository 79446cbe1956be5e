"""Tile shapes of prefill, as data: by architecture and form of the keys and values; rows are queries times the group
size.

    shared bytes  = [block_r, D] queries + the buffers of [2, block_n, D] keys and values, 2 bytes per number: with 128
                  rows, 64 tokens and 128 channels 32 KB + 32 KB per tile, of which num_stages - 1 are under way; a
                    warpgroup's product needs one buffer more.
    registers     = block_r * D float32 of accumulators and block_r * block_n of scores: 64 and 32 per thread at 8 warps

128 rows: two warpgroups of 64, the least that a warpgroup's product takes. A byte of keys is then good for 128
operations, and of an H200's memory 184 are needed: so blocks of rows that share a head run side by side, and fetch each
other's tiles into the L2.
`python -m gpu_kernels.measure` times every candidate of a row; MEASURED.md says which rows have been measured.
"""

from gpu_kernels.attention.configs import Config, Rows, find

# "wide": heads past 128 channels.
CONFIGS: dict[tuple[int, str], Rows] = {
    (80, "16 bit"): [(None, [Config(128, 32, 8, 3, 1)])],
    (80, "16 bit, wide"): [(None, [Config(64, 32, 8, 2, 1)])],
    (80, "8 bit"): [(None, [Config(64, 64, 4, 2, 1)])],
    (80, "8 bit, wide"): [(None, [Config(64, 32, 8, 2, 1)])],
    (80, "dense, 192 and 128"): [(None, [Config(128, 32, 8, 2, 1)])],
    (80, "block lists"): [(None, [Config(128, 32, 8, 2, 1)])],
    (90, "16 bit"): [(None, [Config(128, 64, 8, 3, 1), Config(64, 64, 4, 3, 2), Config(128, 64, 8, 2, 1)])],
    (90, "16 bit, wide"): [(None, [Config(128, 32, 8, 2, 1)])],
    (90, "8 bit"): [(None, [Config(128, 64, 8, 3, 1), Config(64, 64, 4, 3, 2)])],
    (90, "8 bit, wide"): [(None, [Config(64, 32, 8, 2, 1)])],
    (90, "dense, 192 and 128"): [(None, [Config(128, 64, 8, 3, 1), Config(128, 128, 8, 2, 1)])],
    (90, "block lists"): [(None, [Config(128, 64, 8, 3, 1), Config(64, 64, 4, 3, 2)])],
}
# Not tuned for its tensor memory: Hopper's shapes, if they fit.
CONFIGS |= {(100, form): rows for (arch, form), rows in CONFIGS.items() if arch == 90}
CONFIGS[100, "16 bit"] = [(None, [Config(128, 64, 8, 2, 1)])]  # with two tiles under way it spills 8 bytes
CONFIGS[100, "dense, 192 and 128"] = [(None, [Config(128, 32, 8, 3, 1)])]  # 64 tokens spill


def row(op: str, arch: int, form: str) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS.

    raises  NotImplementedError if the architecture has no rows
    """
    return find(op, CONFIGS, arch, form, 0)


def paged_form(is_codes: bool, head_size: int) -> str:
    return ("8 bit" if is_codes else "16 bit") + (", wide" if head_size > 128 else "")
