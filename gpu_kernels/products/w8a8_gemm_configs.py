"""Tile shapes of the W8A8 product, as data: a table by architecture and number of tokens.

There is no autotuner in the call: it would time inside the first call of every new shape, and its choice could be
neither recorded nor compiled ahead. `python -m gpu_kernels.measure --choose` times every candidate of a row and keeps
the fastest in configs/ for that model of GPU; on others the first of the row runs, which is reasoned, not measured.
"""

from dataclasses import dataclass


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

# Architecture -> rows (largest M of the row, candidates, the one to use first); the last row has no largest M.
# Few tokens: the weights are read once and the rate is the memory's, so many narrow programs and deep pipelines. Memory
# needs 23 KB on their way to each multiprocessor (weight_only_configs.py): 4 tiles of 32 channels by 256 features are
# 32 KB, so one program does while it runs, and two let one start while the other ends.
# Many tokens: 128-wide tiles, whose int32 accumulators (128 * 128 * 4 bytes over 128 threads, or 128 * 256 over 256)
# take 128 of a thread's 255 registers.
CONFIGS: dict[int, list[tuple[int | None, list[Config]]]] = {
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


def candidates(arch: int, num_tokens: int) -> list[Config]:
    """The row of CONFIGS for an architecture and M, the configuration to use first.

    arch    compute capability times ten: 80, 90; 86 and 89 are none, since they have less shared memory
    raises  NotImplementedError if the architecture has no rows
    """
    return _row(arch, num_tokens)[1]


def row_name(arch: int, num_tokens: int) -> str:
    """The name of that row, as configs/ knows it."""
    largest = _row(arch, num_tokens)[0]
    return "any M" if largest is None else f"M<={largest}"


def _row(arch: int, num_tokens: int) -> tuple[int | None, list[Config]]:
    if arch not in CONFIGS:
        raise NotImplementedError(f"w8a8_gemm: got sm_{arch}, expected one of {[f'sm_{known}' for known in CONFIGS]}")
    return next(row for row in CONFIGS[arch] if row[0] is None or num_tokens <= row[0])
