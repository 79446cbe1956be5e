"""Problems that prove a kernel: one problem is one op at one size, with its oracle, its bound, its cost and its
peers.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata, util
from typing import Any, Protocol

import torch
from torch import Tensor

from gpu_kernels.dispatch import FAMILIES
from gpu_kernels.launch import Launch


def dtype_name(dtype: torch.dtype) -> str:
    """ "bfloat16" """
    return str(dtype).removeprefix("torch.")


Given = Callable[[str], dict[str, Any]]  # a problem's operands by keyword, on a device


class Kernel(Protocol):
    """The calls and launches of a problem's op.

    call      call(**operands): the public function with impl="triton"; returns all that it writes, in-place ones too
    launches  (meta operands, architecture) -> the launches of `call` there; NotImplementedError if it refuses
    variants  {configuration: call(**operands) with it}: the candidates of the operands' row of configurations
    row_name  the name of that row; "" without configurations
    """

    def call(self, **operands: Any) -> Any: ...

    def launches(self, operands: dict[str, Any], arch: int) -> list[Launch]: ...

    def variants(self, given: Given, arch: int) -> dict[str, Callable[..., Any]]: ...

    def row_name(self, given: Given, arch: int) -> str: ...


@dataclass(frozen=True, slots=True)
class Peer:
    """Others' code on operands of another form: `prepare` makes them of the problem's, untimed; call(**prepared)."""

    prepare: Callable[[dict[str, Any]], dict[str, Any]]
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Op:
    """An op as it is proved.

    name       as in the dispatch table
    kernel     the calls and launches
    reference  the oracle on the same keywords, float64 or float32
    """

    name: str
    kernel: Kernel
    reference: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """One op at one size.

    label      "M=16 N=4096 K=4096 g128": for people; unique within the op
    sizes      as a record holds them
    operands   device ("cpu", "cuda", "meta") -> keyword arguments: seeded, with poison in memory that must not be read
    agrees     (result, reference's) -> bool; the bound is a formula of dtype and K, which its docstring derives
    num_bytes  read and written once by the kernel, term by term in the code that computes it
    ops        multiply-adds x 2
    bound    its limit: "bf16", "fp8", "int8" or "bandwidth"
    peers      name -> call(**operands), or a Peer: others' code for the job, or the chain that a fused step replaces
    is_timed          False: a small odd size, which is checked alone
    is_interpretable  False: of a dtype that the interpreter gets wrong
    """

    op: Op
    label: str
    sizes: dict[str, int | str]
    operands: Given
    agrees: Callable[[Any, Any], bool]
    num_bytes: int
    ops: int
    bound: str
    peers: Mapping[str, Callable[..., Any] | Peer]
    is_timed: bool = True
    is_interpretable: bool = True

    def __str__(self) -> str:
        return f"{self.op.name} {self.label}"

    @property
    def is_interpreted(self) -> bool:
        """Whether the interpreter checks it: timed sizes take it too long."""
        return self.is_interpretable and not self.is_timed

    def launches(self, arch: int) -> list[Launch]:
        """Those of a call on this architecture; NotImplementedError if it refuses."""
        return self.op.kernel.launches(self.operands("meta"), arch)

    def variants(self, arch: int) -> dict[str, Callable[..., Any]]:
        """{configuration: call(**operands) with it}"""
        return self.op.kernel.variants(self.operands, arch)

    def row(self, arch: int) -> str:
        """The name of its row of configurations."""
        return self.op.kernel.row_name(self.operands, arch)


def family(op: str) -> str:
    """The op's family; "decode" for a whole model's step, which is no op of the table."""
    return next((name for name, rows in FAMILIES.items() if (op, "cuda") in rows), "decode")


def all_ops() -> list[str]:
    return list(dict.fromkeys(op for rows in FAMILIES.values() for op, _ in rows))


def problems_of(op: str) -> list[Problem]:
    """The problems in gpu_kernels/<family>/<op>_problems.py, the most important first."""
    return import_module(f"gpu_kernels.{family(op)}.{op}_problems").problems()


def refusal(problem: Problem, arch: int) -> str | None:
    """Why the op does not run on this architecture, in its own words; None if it runs."""
    try:
        problem.launches(arch)
    except NotImplementedError as error:
        return str(error)
    return None


def in_turn(problems: Iterable[Problem]) -> list[Problem]:
    """Those that are timed, each op's first before any op's second: a run cut short has the most important."""
    by_op: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.is_timed:
            by_op.setdefault(problem.op.name, []).append(problem)
    rows = list(by_op.values())
    return [row[i] for i in range(max(map(len, rows), default=0)) for row in rows if i < len(row)]


class Draw:
    """The same numbers for the same seed, device and order of calls."""

    def __init__(self, device: str, seed: int = 0):
        self.device = device
        self.generator = None if device == "meta" else torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device).to(dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device) * (high - low) + low

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
        """In [low, high)."""
        return torch.randint(low, high, shape, generator=self.generator, device=self.device, dtype=dtype)


def within_rounding(y: Tensor, expected: Tensor, float32_roundings: int) -> bool:
    """y is expected, within one rounding to y's type (of subnormals too) after so many roundings in float32.

    Each rounding to float32 adds at most 2**-24 of the value, the one to y's type half of one step: eps / 2 of a normal
    value, and half of smallest_normal * eps of a subnormal one (a whole one is allowed). NaN agrees with NaN alone.
    """
    about = torch.finfo(y.dtype)
    bound = (about.eps / 2 + float32_roundings * 2**-24) * expected.abs() + about.smallest_normal * about.eps
    error = (y.double() - expected.double()).abs()
    same = (error <= bound) | (y.double() == expected.double()) | (y.isnan() & expected.isnan())
    return bool(same.all())


def same(got: Tensor, expected: Tensor) -> bool:
    """Equal, element by element, and NaN where the other is."""
    return torch.equal(got.isnan(), expected.isnan()) and torch.equal(
        got.nan_to_num(nan=0.0), expected.nan_to_num(nan=0.0)
    )


# Module -> the distribution that brings it.
DISTRIBUTIONS = {"flashinfer": "flashinfer-python", "vllm": "vllm"}


def where_installed(module: str, peers: dict[str, Peer]) -> dict[str, Peer]:
    """The peers, whose code imports the module when it runs; {} without it."""
    return peers if util.find_spec(module) else {}


def peer_versions() -> dict[str, str]:
    """Versions of those that are installed, by module."""
    return {module: metadata.version(name) for module, name in DISTRIBUTIONS.items() if util.find_spec(module)}
