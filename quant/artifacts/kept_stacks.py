"""Stacked tensors of a checkpoint, read and unpacked once for all their members."""

from collections.abc import Callable

from quant.artifacts.layouts import module_of
from quant.models.stored import StoredAt
from quant.present import present
from quant.qtensor import QTensor


class KeptStacks:
    """The stacks of one module, each until all of its members were asked for.

    Members are read one after another, a module's weights and biases in turn: so no more than one module is held,
    and nothing behind the last member.
    """

    def __init__(self) -> None:
        self._module: str | None = None
        self._kept: dict[str, tuple[QTensor, set[int]]] = {}  # name in the file -> all of it, the places asked for

    def get(self, file_name: str, at: StoredAt, read: Callable[[], QTensor]) -> QTensor:
        """The whole stack that holds `at`; `read` makes it if it is not held."""
        module = module_of(file_name.removesuffix(".bias"))
        if module != self._module:
            self._module, self._kept = module, {}
        qtensor, asked = self._kept.get(file_name) or (read(), set())
        asked.add(present(at.place))
        self._kept[file_name] = qtensor, asked
        if len(asked) == len(at.sizes):
            del self._kept[file_name]
        return qtensor
