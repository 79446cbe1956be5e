"""The kernels of problems: an op with a table of tile shapes, and one without."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpu_kernels.launch import Launch
from gpu_kernels.proof.problems import Given


@dataclass(frozen=True, slots=True)
class Unconfigured:
    """call, launches_of  `Kernel.call` and `Kernel.launches`
    others             name -> call(**operands), to be compared with `call`
    """

    call: Callable[..., Any]
    launches_of: Callable[[dict[str, Any], int], list[Launch]]
    others: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def launches(self, operands: dict[str, Any], arch: int) -> list[Launch]:
        return self.launches_of(operands, arch)

    def variants(self, given: Given, arch: int) -> dict[str, Callable[..., Any]]:
        return dict(self.others)

    def row_name(self, given: Given, arch: int) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Configured:
    """function     the op's public function
    operands     the op's `Operands`; `empty()` of one gives the buffers for its results
    run          (operands, *results, config) -> None
    launches_of  (operands, *results, config, arch) -> list[Launch]
    row          (operands, arch) -> (the row's name, its candidates), the default first
    """

    function: Callable[..., Any]
    operands: Callable[..., Any]
    run: Callable[..., None]
    launches_of: Callable[..., list[Launch]]
    row: Callable[[Any, int], tuple[str, Sequence[Any]]]

    def call(self, **given: Any) -> Any:
        """The results of the public function, by its Triton kernel."""
        return self.function(self.operands(**given), impl="triton")

    def launches(self, operands: dict[str, Any], arch: int) -> list[Launch]:
        """Those of each candidate, the default's first."""
        made = self.operands(**operands)
        results = _buffers(made.empty())
        candidates = self.row(made, arch)[1]
        return [launch for config in candidates for launch in self.launches_of(made, *results, config, arch)]

    def variants(self, given: Given, arch: int) -> dict[str, Callable[..., Any]]:
        candidates = self.row(self.operands(**given("meta")), arch)[1]
        return {str(config): partial(self.results, config) for config in candidates}

    def row_name(self, given: Given, arch: int) -> str:
        return self.row(self.operands(**given("meta")), arch)[0]

    def results(self, config: Any, **given: Any) -> Any:
        """The op's results with this candidate."""
        operands = self.operands(**given)
        results = operands.empty()
        self.run(operands, *_buffers(results), config)
        return results


def _buffers(results: Any) -> tuple:
    return results if isinstance(results, tuple) else (results,)
