"""Suites of kernels for `qbench kernels --suite`: YAML data, checked before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qbench.kernels.linear_benchmarks import ANY_SHAPE
from qbench.kernels.timed import timed_ops
from qbench.measure.host.conditions import CLOCKS, check_clock
from qbench.measure.host.machine import available_cores
from qbench.run.axes import ALL
from qbench.run.choices import check_threads
from qbench.run.suite_values import fields_of, names_of
from qbench.words.written import nearest
from quant.errors import InputError
from quant.yaml_file import read_yaml

# key -> type of its values, words that mean such a value; a single value is a list of one
LISTS = {"threads": (int, (ALL,))}
LISTS_OF_CASES = {"kernels": (str, ()), "shapes": (str, ()), "tokens": (int, ())}


@dataclass(frozen=True, slots=True)
class Cases:
    """Kernels that are timed at the same shapes and numbers of tokens.

    kernels   names of ops, or patterns as fnmatch reads them
    shapes    as their rows name them, or patterns
    tokens    tokens per call, for ops that take tokens
    """

    kernels: tuple[str, ...]
    shapes: tuple[str, ...] = ANY_SHAPE
    tokens: tuple[int, ...] = (1, 4, 16, 64, 512)

    def __post_init__(self) -> None:
        for key in LISTS_OF_CASES:
            if not getattr(self, key):
                raise InputError(f"{key} is empty, expected at least one")
        if min(self.tokens) < 1:
            raise InputError(f"tokens has {min(self.tokens)}, expected 1 or more")
        known = timed_ops()
        for pattern in self.kernels:
            if not any(fnmatchcase(op, pattern) for op in known):
                raise InputError(f"no kernel {pattern!r} is timed{nearest(pattern, known)}")


@dataclass(frozen=True, slots=True)
class KernelSuite:
    """cases     one after the other
    threads   of each case, one after the other; "all": one for every core that this process may use
    clock     "wall", or "cpu": the time that this process gets, of one thread
    """

    name: str
    cases: tuple[Cases, ...]
    description: str = ""
    version: int = 1
    threads: tuple[int | str, ...] = (ALL,)
    clock: str = "wall"

    def __post_init__(self) -> None:
        if not self.threads:
            raise InputError(f"suite {self.name}: threads is empty, expected at least one")
        if self.clock not in CLOCKS:
            raise InputError(f"suite {self.name}: unknown clock {self.clock!r}; known: {', '.join(CLOCKS)}")
        for threads in self.counts:
            check_threads(threads, f"suite {self.name}: ")
            check_clock(self.clock, threads)

    @property
    def counts(self) -> tuple[int, ...]:
        """Each number of threads once, as this machine has cores."""
        return tuple(dict.fromkeys(available_cores() if isinstance(one, str) else one for one in self.threads))


def load_kernel_suite(path: Path) -> KernelSuite:
    """raises InputError for a file, key, name or value that it cannot use"""
    document: Any = read_yaml(path, "suite")
    values = fields_of(document, KernelSuite, str(path), names_of(KernelSuite), LISTS, sections=("cases",))
    require(document, ("name", "cases"), path)
    cases = values["cases"]
    if not isinstance(cases, list) or not cases:
        raise InputError(f"{path}: cases is {cases!r}, expected a list of mappings, each with kernels")
    values["cases"] = tuple(_cases(one, f"{path}: cases[{i}]") for i, one in enumerate(cases))
    return KernelSuite(**values)


def _cases(document: Any, where: str) -> Cases:
    values = fields_of(document, Cases, where, names_of(Cases), LISTS_OF_CASES)
    require(document, ("kernels",), where)
    try:
        return Cases(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def require(document: Mapping[str, Any], names: Sequence[str], where: Path | str) -> None:
    missing = [name for name in names if name not in document]
    if missing:
        raise InputError(f"{where}: {', '.join(missing)} missing; a suite of kernels needs {' and '.join(names)}")
