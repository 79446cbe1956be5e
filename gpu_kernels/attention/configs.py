"""Common code of the tables of tile shapes of all attention kernels."""

from dataclasses import dataclass

# Shared memory that one program may use, by compute capability times ten.
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}


@dataclass(frozen=True, slots=True)
class Config:
    """One program has block_r rows (a query of a head) and walks its tokens in steps of block_n.

    num_stages - 1 tiles are under way while one is multiplied.
    """

    block_r: int
    block_n: int
    num_warps: int
    num_stages: int
    programs: int  # that one multiprocessor holds at once: registers and shared memory decide

    def __str__(self) -> str:
        return f"{self.block_r}x{self.block_n}-w{self.num_warps}-s{self.num_stages}"


# (most rows of a sequence that the entry is for, candidates with the one to use first); the last has no most.
Rows = list[tuple[int | None, list[Config]]]


def find(op: str, table: dict[tuple[int, str], Rows], arch: int, form: str, size: int) -> tuple[str, list[Config]]:
    """(the name of the row as configs/ knows it, its candidates).

    table   by architecture and form of the cache ("16 bit", "8 bit")
    raises  NotImplementedError if the architecture has no rows
    """
    if (arch, form) not in table:
        known = [f"sm_{known}" for known in sorted({known for known, _ in table})]
        raise NotImplementedError(f"{op}: got sm_{arch}, expected one of {known}")
    most, candidates = next(row for row in table[arch, form] if row[0] is None or size <= row[0])
    return f"{form}, {'any rows' if most is None else f'rows<={most}'}", candidates
