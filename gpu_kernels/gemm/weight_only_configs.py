"""Tile shapes of the products whose weights alone are quantized, as data: by architecture and number of tokens.

Work that an H200 can do while it reads weights, for which these shapes must leave room:
- 4.3e12 bytes per second over 132 multiprocessors at 1.75 GHz are 18.6 bytes, 37 weights of 4 bits, per cycle on each;
  its four schedulers issue 128 lanes of one instruction per cycle: 3.4 instructions per weight. Turning 4-bit codes
  into floats takes 1.4 (compiled for sm_90: 64 LOP3, 48 SHF and 64 HADD2 for 128 weights), and the whole loop of a tile
  of 128 rows and 16 tokens 2.9 (365 for 128 weights per thread). Q4_K's loop takes 6.0 for 4.6 bits, at 32 weights per
  cycle: its rate is the instructions', about two thirds of the memory's.
- Memory answers after about 700 ns, so 3 MB have to be on their way, 23 KB on each multiprocessor: a tile of 128 rows
  has 8 KB a step of 128 features, and three of its four stages are on their way while the fourth is used.
- One program alone stalls on its own chain of load, convert and multiply; with four or more on a multiprocessor,
  16 warps or more, one loads while others convert.
- Up to 16 tokens the activations come out of the L2: 4 KB per step for 16 tokens, next to 8 KB of 4-bit weights for 128
  rows; 256 rows halve that.
Many tokens: 128 x 128 tiles over 256 threads, since a tile's sum and its group's sum take 64 registers each of a
thread's 255: 128 x 256 spills. Q4_K has a third sum, of minima, so half of that tile. The codes are converted once for
64 or 128 tokens.
"""

from dataclasses import dataclass

from gpu_kernels.gemm.rows import Rows, find_row


@dataclass(frozen=True, slots=True)
class Config:
    """One program computes a tile of block_n channels by block_m tokens, or a share of its input features."""

    block_n: int
    block_m: int
    group_n: int  # tile rows of weights that share their tokens in the L2 before the next tokens start
    programs_per_sm: int  # tiles are split over the input features until there are about so many; 0: never
    num_warps: int
    num_stages: int

    def __str__(self) -> str:
        tile = f"{self.block_n}x{self.block_m}-g{self.group_n}-p{self.programs_per_sm}"
        return f"{tile}-w{self.num_warps}-s{self.num_stages}"


FEWEST = [Config(64, 8, 1, 6, 4, 4), Config(64, 8, 1, 4, 4, 5), Config(128, 8, 1, 6, 4, 4)]
FEW = [
    Config(64, 16, 1, 4, 4, 5),
    Config(64, 16, 1, 4, 4, 3),
    Config(64, 16, 1, 6, 4, 4),
    Config(128, 16, 1, 4, 4, 4),
    Config(256, 16, 1, 4, 8, 3),
]
SOME = [Config(128, 64, 1, 2, 8, 3), Config(128, 64, 1, 2, 4, 4), Config(64, 64, 1, 2, 4, 4)]
MANY = [Config(128, 128, 8, 0, 8, 3), Config(128, 64, 8, 0, 4, 4), Config(64, 128, 8, 0, 4, 3)]
MANY_OF_GGUF = [Config(128, 64, 8, 0, 8, 3), Config(64, 64, 8, 0, 4, 4), Config(64, 128, 8, 0, 8, 3)]

# By op and M.
ROWS: dict[str, Rows[Config]] = {
    "w4a16_gemm": [(8, FEWEST), (16, FEW), (64, SOME), (None, MANY)],
    "w8a16_gemm": [(8, FEWEST), (16, FEW), (64, SOME), (None, MANY)],
    "gguf_gemm": [(16, FEW), (64, SOME), (None, MANY_OF_GGUF)],
}
# Without sm_90's products out of shared memory the tokens' fragments take registers too: 16 sums a thread are left.
ROWS_80 = {**ROWS, "gguf_gemm": [(16, FEW), (64, SOME), (None, [Config(64, 32, 8, 0, 4, 4), *MANY_OF_GGUF])]}
BY_ARCHITECTURE = {80: ROWS_80, 90: ROWS, 100: ROWS}


def row(op: str, arch: int, num_tokens: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of ROWS for an op and M.

    raises  NotImplementedError if the architecture has no rows
    """
    return find_row(op, {known: rows[op] for known, rows in BY_ARCHITECTURE.items()}, arch, num_tokens)
