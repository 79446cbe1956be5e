"""Tile shapes of MLA decode, as data: by architecture, form of the cache and rows (queries times heads).

    shared bytes  = [block_r, 576] queries + buffers of [block_n, 576] tokens, 2 bytes per number (and, in FP8, the
                  codes)
    accumulators  = block_r * 512 float32 over num_warps * 32 threads: 64 per thread at 16 rows and 4 warps, 128 at 64
                  rows and 8 warps, the most that 255 registers can hold with the scores

Latency times bandwidth of an H200 is about 0.7 us * 4.3 TB/s = 3 MB, or 23 KB per multiprocessor; a tile of 32 tokens
is 36 KB.

Few heads read memory and compute little. Every warp reads all of the queries for its tokens, so fewer warps with more
tokens each read less from shared memory: measured on an H200, 64 tokens over 4 warps reach its bandwidth, and over 8
warps 84 % of it. In FP8 the kernel fetches one tile ahead itself, into registers, and num_stages is 1.

128 heads compute: 64 rows, the least that a warpgroup's product takes, and one program per multiprocessor. There the
compiler keeps some addresses in local memory (200 bytes per thread), which the loop reads and never writes.
`python -m gpu_kernels.measure` times every candidate of a row; MEASURED.md says which rows have been measured.
"""

from gpu_kernels.attention.configs import Config, Rows, find

CONFIGS: dict[tuple[int, str], Rows] = {
    (80, "16 bit"): [
        (16, [Config(16, 32, 4, 2, 2), Config(16, 32, 8, 3, 1)]),
        (None, [Config(32, 32, 8, 3, 1), Config(64, 32, 8, 2, 1)]),
    ],
    (80, "8 bit"): [
        (16, [Config(16, 32, 4, 1, 2)]),
        (None, [Config(32, 32, 8, 1, 1)]),
    ],
    (90, "16 bit"): [
        (16, [Config(16, 64, 4, 3, 1), Config(16, 32, 4, 3, 2), Config(16, 64, 8, 3, 1)]),
        (32, [Config(32, 64, 8, 3, 1), Config(32, 32, 8, 4, 1)]),
        (None, [Config(64, 64, 8, 2, 1), Config(64, 32, 8, 3, 1)]),
    ],
    (90, "8 bit"): [
        (16, [Config(16, 32, 4, 1, 2), Config(16, 32, 8, 1, 1)]),
        (None, [Config(32, 32, 8, 1, 1)]),
    ],
}
# Not tuned for its tensor memory: Hopper's shapes, except 64 rows by 64 tokens, which do not fit.
CONFIGS |= {(100, form): CONFIGS[90, form] for form in ("16 bit", "8 bit")}
CONFIGS[100, "16 bit"] = [*CONFIGS[90, "16 bit"][:2], (None, [Config(64, 32, 8, 2, 1)])]


def row(arch: int, is_fp8: bool, num_rows: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS for so many queries times heads.

    raises  NotImplementedError if the architecture has no rows
    """
    return find("mla_decode", CONFIGS, arch, "8 bit" if is_fp8 else "16 bit", num_rows)
