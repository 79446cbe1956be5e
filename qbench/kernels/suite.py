"""Suites of kernels: what `qbench kernels --suite` times, as YAML data, checked before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qbench.harness.host.clocks import CLOCKS, check_clock
from qbench.harness.host.machine import available_cores
from qbench.harness.suite.axes import ALL
from qbench.harness.suite.suite_values import fields_of
from qbench.kernels.registry import timed_ops
from qbench.nearest import nearest
from qbench.threads import check_threads
from quant.errors import InputError
from quant.yaml_file import read_yaml

# key -> type of its values, words that stand for one; a single value is a list of one
LISTS = {"kernels": (str, ()), "tokens": (int, ()), "threads": (int, (ALL,))}


@dataclass(frozen=True, slots=True)
class KernelSuite:
    """kernels   names of ops, or patterns as fnmatch reads them
    tokens    a call
    threads   of each, one after the other; "all": one for every core that this process may use
    clock     "wall", or "cpu": the time that this process gets, of one thread
    """

    name: str
    kernels: tuple[str, ...]
    description: str = ""
    version: int = 1
    tokens: tuple[int, ...] = (1, 4, 16, 64, 512)
    threads: tuple[int | str, ...] = (ALL,)
    clock: str = "wall"

    def __post_init__(self) -> None:
        for key in LISTS:
            if not getattr(self, key):
                raise InputError(f"suite {self.name}: {key} is empty, expected at least one")
        if min(self.tokens) < 1:
            raise InputError(f"suite {self.name}: tokens has {min(self.tokens)}, expected 1 or more")
        known = timed_ops()
        for pattern in self.kernels:
            if not any(fnmatchcase(op, pattern) for op in known):
                raise InputError(f"suite {self.name}: no kernel {pattern!r} is timed{nearest(pattern, known)}")
        if self.clock not in CLOCKS:
            raise InputError(f"suite {self.name}: unknown clock {self.clock!r}; known: {', '.join(CLOCKS)}")
        for threads in self.counts:
            check_threads(threads, f"suite {self.name}: ")
            check_clock(self.clock, threads)

    @property
    def counts(self) -> tuple[int, ...]:
        """Each number of threads once, as this machine has cores."""
        return tuple(dict.fromkeys(available_cores() if one == ALL else one for one in self.threads))


def load_kernel_suite(path: Path) -> KernelSuite:
    """raises InputError for a file, key, name or value that it cannot use"""
    document: Any = read_yaml(path, "suite")
    values = fields_of(document, KernelSuite, str(path), LISTS)
    require(document, ("name", "kernels"), path)
    return KernelSuite(**values)


def require(document: Mapping[str, Any], names: Sequence[str], path: Path) -> None:
    missing = [name for name in names if name not in document]
    if missing:
        raise InputError(f"{path}: {', '.join(missing)} missing; a suite of kernels needs {' and '.join(names)}")
