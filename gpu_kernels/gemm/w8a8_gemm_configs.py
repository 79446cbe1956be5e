"""Tile shapes of the W8A8 product, as data: a table by architecture and number of tokens.

There is no autotuner in the call: it would time inside the first call of every new shape, and its choice could be
neither recorded nor compiled ahead. `python -m gpu_kernels.measure --choose` times every candidate of a row and keeps
the fastest in configs/ for that model of GPU; on others the first of the row runs, which is reasoned, not measured.
"""

from dataclasses import dataclass

from gpu_kernels.gemm.rows import Rows, find_row


@dataclass(frozen=True, slots=True)
class Config:
    """One program computes a [block_m, block_n] tile of y in steps of block_k input features."""

    block_m: int
    block_n: int
    block_k: int
    group_m: int  # tile rows that share their weight tiles in the L2 before the next tile column starts
    num_warps: int
    num_stages: int  # tiles of x_q and weight_q in flight
    programs_per_sm: int = 0  # tiles are split over the input features until there are about so many; 0: never

    def __str__(self) -> str:
        tile = f"{self.block_m}x{self.block_n}x{self.block_k}-g{self.group_m}"
        split = f"-p{self.programs_per_sm}" if self.programs_per_sm else ""
        return f"{tile}{split}-w{self.num_warps}-s{self.num_stages}"

    @property
    def shared_bytes(self) -> int:
        return (self.block_m + self.block_n) * self.block_k * self.num_stages


# Shared memory that one program may use, by compute capability times ten.
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}

# By architecture and M.
# Few tokens: the weights are read once and the rate is the memory's, so many narrow programs and deep pipelines. Memory
# needs 23 KB on their way to each multiprocessor (weight_only_configs.py): 4 tiles of 32 channels by 256 features are
# 32 KB, so one program does while it runs, and two let one start while the other ends.
# Many tokens: 128-wide tiles, whose int32 accumulators (128 * 128 * 4 bytes over 128 threads, or 128 * 256 over 256)
# take 128 of a thread's 255 registers.
CONFIGS: dict[int, Rows[Config]] = {
    80: [
        (16, [Config(16, 32, 256, 1, 4, 4, 2), Config(16, 64, 128, 1, 4, 5, 2)]),
        (64, [Config(64, 64, 128, 8, 4, 4), Config(32, 64, 128, 8, 4, 4)]),
        (None, [Config(128, 128, 64, 8, 8, 4), Config(128, 128, 128, 8, 8, 3)]),
    ],
    90: [
        (16, [Config(16, 32, 256, 1, 4, 5, 2), Config(16, 64, 256, 1, 4, 4, 2), Config(16, 32, 512, 1, 4, 4, 1)]),
        (64, [Config(64, 64, 128, 8, 4, 5), Config(64, 32, 256, 8, 4, 4), Config(64, 128, 128, 8, 4, 4)]),
        (None, [Config(128, 256, 128, 8, 8, 3), Config(128, 128, 128, 8, 4, 4), Config(128, 128, 128, 8, 8, 4)]),
    ],
}
CONFIGS[100] = CONFIGS[90]  # the same shared memory and registers; no reason yet for other tiles


def row(arch: int, num_tokens: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS for an architecture and M.

    raises  NotImplementedError if the architecture has no rows
    """
    return find_row("w8a8_gemm", CONFIGS, arch, num_tokens)
