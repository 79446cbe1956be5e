"""A Triton op whose tile shape comes from a table: how a call chooses it and runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gpu_kernels.chosen import chosen
from gpu_kernels.launch import Launch, architecture, run_all


@dataclass(frozen=True, slots=True)
class Tuned:
    """op        as in the dispatch table
    kernel    of its first launch: a JITFunction compiles, anything else is interpreted
    row_of    (operands, arch) -> (the row's name, its candidates), the default first
    launches  (operands, *results, config, arch) -> list[Launch]
    """

    op: str
    kernel: object
    row_of: Callable[[Any, int], tuple[str, Sequence[Any]]]
    launches: Callable[..., list[Launch]]

    def run(self, operands: Any, first: Tensor, *others: Tensor | None, config: Any = None) -> None:
        """Writes the results, in the configuration that was chosen for the row unless one is given.

        raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
        """
        device = first.device
        arch = architecture(self.op, first, self.kernel)
        config = config or chosen(self.op, *self.row_of(operands, arch), device)
        run_all(self.launches(operands, first, *others, config, arch), device)
