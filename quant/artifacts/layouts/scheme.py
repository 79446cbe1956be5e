"""Scheme: how a config group of compressed-tensors quantizes its linears; Targets: which modules belong to it."""

import re
from collections.abc import Iterable, Sequence
from typing import NotRequired, TypedDict

from quant.artifacts.layouts.patterns import compiled
from quant.errors import InputError

PATTERN = "re:"
LINEAR = "Linear"
EXPERTS = r"re:.*\.experts\."  # transformers finds the scheme of all experts by such a pattern alone
MOST_PATTERNS = 256  # of one group: each is matched with each module


class QuantizationArgs(TypedDict):
    """How one kind of tensor is quantized.

    group_size        None if there are no groups
    block_structure   rows and columns of a block that shares a scale, if the strategy is "block"
    """

    num_bits: int
    type: str
    symmetric: bool
    strategy: str
    group_size: int | None
    dynamic: bool
    block_structure: NotRequired[list[int]]


class Scheme(TypedDict):
    """None: not quantized"""

    weights: QuantizationArgs
    input_activations: QuantizationArgs | None
    output_activations: QuantizationArgs | None


def quantization_args(
    kind: str, strategy: str, bits: int = 8, group_size: int | None = None, dynamic: bool = False
) -> QuantizationArgs:
    """kind: "int" or "float" """
    return {
        "num_bits": bits,
        "type": kind,
        "symmetric": True,
        "strategy": strategy,
        "group_size": group_size,
        "dynamic": dynamic,
    }


def targets_of(members: Sequence[str], others: Iterable[str]) -> list[str]:
    """The modules of a config group, by one pattern for all experts of the model if no other group has any."""
    experts = re.compile(EXPERTS.removeprefix(PATTERN))
    if not any(map(experts.match, members)) or any(map(experts.match, others)):
        return list(members)
    return [module for module in members if not experts.match(module)] + [EXPERTS]


class Targets:
    """raises InputError for a pattern that is not read here, and for too many of them"""

    def __init__(self, targets: Iterable[str], where: str) -> None:
        self._names = frozenset(targets)
        patterns = sorted(name.removeprefix(PATTERN) for name in self._names if name.startswith(PATTERN))
        if len(patterns) > MOST_PATTERNS:
            raise InputError(f"{where}: {len(patterns)} patterns in one config group, expected at most {MOST_PATTERNS}")
        self._patterns = [compiled(pattern, where) for pattern in patterns]

    def rank(self, module: str) -> int | None:
        """How the module is meant: 0 by its name, 1 by a pattern, 2 as a Linear; None: not at all. The lowest wins."""
        if module in self._names:
            return 0
        if any(pattern.matches(module) for pattern in self._patterns):
            return 1
        return 2 if LINEAR in self._names else None
