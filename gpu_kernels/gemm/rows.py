"""Tables of tile shapes: which row holds the candidates for an architecture and a size."""

from typing import TypeVar

Config = TypeVar("Config")
# (largest size that the row is for, candidates with the one to use first); the last row has no largest size.
Rows = list[tuple[int | None, list[Config]]]


def find_row(op: str, by_arch: dict[int, Rows[Config]], arch: int, num_tokens: int) -> tuple[str, list[Config]]:
    """(the row's name as configs/ knows it, its candidates).

    arch    compute capability times ten: 80, 90; 86 and 89 have no rows, since they have less shared memory
    raises  NotImplementedError if the architecture has no rows
    """
    if arch not in by_arch:
        raise NotImplementedError(f"{op}: got sm_{arch}, expected one of {[f'sm_{known}' for known in by_arch]}")
    largest, candidates = next(row for row in by_arch[arch] if row[0] is None or num_tokens <= row[0])
    return "any M" if largest is None else f"M<={largest}", candidates
