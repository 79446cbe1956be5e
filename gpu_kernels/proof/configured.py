"""An op with a table of tile shapes: the calls, launches and names of its problems for each candidate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpu_kernels.launch import Launch

Given = Callable[[str], dict[str, Any]]  # a problem's operands by keyword, on a device


@dataclass(frozen=True, slots=True)
class Configured:
    """operands  the op's `Operands`; `empty()` of one gives the buffers for its results
    run       (operands, *results, config) -> None
    launches  (operands, *results, config, arch) -> list[Launch]
    row       (operands, arch) -> (the row's name, its candidates), the default first
    """

    operands: Callable[..., Any]
    run: Callable[..., None]
    launches: Callable[..., list[Launch]]
    row: Callable[[Any, int], tuple[str, Sequence[Any]]]

    def call(self, function: Callable[..., Any], **given: Any) -> Any:
        """The results of the op's public function, by its Triton kernel."""
        return function(self.operands(**given), impl="triton")

    def all_launches(self, given: dict[str, Any], arch: int) -> list[Launch]:
        """Those of each candidate, the default's first."""
        operands = self.operands(**given)
        results = _buffers(operands.empty())
        candidates = self.row(operands, arch)[1]
        return [launch for config in candidates for launch in self.launches(operands, *results, config, arch)]

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
