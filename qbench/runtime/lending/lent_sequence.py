"""`LentSequence`: a sequence whose oldest tokens are in pages of other instances."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qbench.runtime.caches.places.pages import PagedSequence, PagePool
from qbench.runtime.caches.places.places import PoolPages


@dataclass(frozen=True, slots=True)
class Debt:
    """Pages of one sequence on another instance. key: its number among all loans of that creditor"""

    creditor: int
    key: int
    num_pages: int


class LentSequence(PagedSequence):
    """Its own pages hold the tokens behind the lent ones.

    debts      oldest tokens first
    on_return  called with the debts when the sequence ends
    """

    def __init__(self, pool: PagePool, on_return: Callable[[Sequence[Debt]], None]) -> None:
        super().__init__(pool)
        self.debts: list[Debt] = []
        self._on_return = on_return

    @property
    def num_lent(self) -> int:
        """Tokens on other instances"""
        return sum(debt.num_pages for debt in self.debts) * self.pool.page_size

    @property
    def num_slots(self) -> int:
        return self.seq_len - self.num_lent

    @property
    def num_movable(self) -> int:
        """Own pages that are full"""
        return self.num_slots // self.pool.page_size

    def owe(self, debt: Debt) -> None:
        """The creditor has a copy of the oldest own pages; they are free from here on."""
        for page in self.pages[: debt.num_pages]:
            self.pool.release(page)
        del self.pages[: debt.num_pages]
        self.debts.append(debt)

    def truncate(self, seq_len: int) -> None:
        assert seq_len == 0, "instances share no prefixes, so a sequence ends as a whole"
        debts, self.debts = self.debts, []
        self._on_return(debts)
        super().truncate(0)


class LentPages(PoolPages):
    """sequences: LentSequences"""

    @property
    def dropped(self) -> np.ndarray | None:
        return np.array([sequence.seq_len - sequence.num_slots for sequence in self.sequences], dtype=np.int64)
