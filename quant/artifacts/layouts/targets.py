"""Which config group of compressed-tensors a module belongs to: by its name, by a pattern, or by being a Linear."""

import re
from collections.abc import Iterable

PATTERN = "re:"
LINEAR = "Linear"


def rank(module: str, targets: Iterable[str]) -> int | None:
    """How the module is meant: 0 by its name, 1 by a pattern, 2 as a Linear; None: not at all. The lowest wins."""
    ranks = [_rank(module, target) for target in targets]
    return min((rank for rank in ranks if rank is not None), default=None)


def _rank(module: str, target: str) -> int | None:
    if target == module:
        return 0
    if target.startswith(PATTERN):
        return 1 if re.match(target.removeprefix(PATTERN), module) else None
    return 2 if target == LINEAR else None
