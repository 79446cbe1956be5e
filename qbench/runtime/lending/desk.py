"""`Desk`: an instance's side of loans: it sends pages and queries to creditors, and answers debtors."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.attention.block_attention import PartialAttention
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.step import Past
from qbench.runtime.lending.lent_sequence import Debt, LentSequence
from qbench.runtime.parallel.ranks import Ranks


class Ask(IntEnum):
    """Messages of a debtor to a creditor.

    ATTEND  layer, key, number of queries: queries follow, and out and lse go back
    RETURN  key: the pages are not needed any more
    END     the debtor's step is over
    """

    ATTEND = 0
    RETURN = 1
    END = 2


@dataclass(frozen=True, slots=True)
class Slots:
    """Queries behind held tokens, of which each sees those up to itself.

    first   tokens of the sequence before the queries
    """

    first: int
    num_held: int
    num_queries: int

    @property
    def positions(self) -> Tensor:
        return torch.arange(self.first, self.first + self.num_queries)

    @property
    def held(self) -> Tensor:
        return torch.arange(self.num_held)


class Desk:
    """Messages go from rank to rank, and both ends know their order.

    lent  (debtor, key) -> pages of this instance's pool that hold the debtor's tokens
    """

    def __init__(self, ranks: Ranks, pool: PagePool) -> None:
        self.ranks, self.pool, self.config = ranks, pool, pool.config
        self.lent: dict[tuple[int, int], list[int]] = {}
        self.owed: dict[int, int] = {}  # creditor -> number of debts that are open
        self._returned: list[Debt] = []
        self._next_key = 0
        self._sizes = (pool.config.num_heads, pool.config.head_dim)

    # ---- as a debtor

    def borrow(self, sequence: LentSequence, creditor: int, num_pages: int) -> None:
        """Move the sequence's oldest pages to the creditor, which calls `lend`."""
        data = np.empty((num_pages, self._page_bytes), dtype=np.uint8)
        for row, page in zip(data, sequence.pages, strict=False):
            self.pool.dump(page, row[: self.pool.block_bytes])
        debt = Debt(creditor, self._next_key, num_pages)
        self._next_key += 1
        self._send(creditor, debt.key)
        self.ranks.send(torch.from_numpy(data).view(torch.float32), [creditor])
        sequence.owe(debt)
        self.owed[creditor] = self.owed.get(creditor, 0) + 1

    def give_back(self, debts: Sequence[Debt]) -> None:
        """At the end of the step."""
        self._returned += debts

    def attend(self, debt: Debt, layer: int, q: Tensor) -> PartialAttention:
        """q [1, H, T, D], rotated, over the tokens of one debt"""
        self._send(debt.creditor, Ask.ATTEND, layer, debt.key, q.shape[2])
        self.ranks.send(q.contiguous(), [debt.creditor])
        answer = self.ranks.receive((*q.shape[:3], q.shape[3] + 1), debt.creditor)
        return PartialAttention(answer[..., :-1], answer[..., -1])

    def end_step(self) -> None:
        """Return pages of sequences that have ended, and let the creditors go on."""
        creditors = [creditor for creditor, count in self.owed.items() if count]
        for debt in self._returned:
            self._send(debt.creditor, Ask.RETURN, debt.key)
            self.owed[debt.creditor] -= 1
        self._returned.clear()
        for creditor in creditors:
            self._send(creditor, Ask.END)

    # ---- as a creditor

    def lend(self, debtor: int, num_pages: int) -> None:
        """Take tokens of the debtor into pages of this instance."""
        key = self._receive(debtor)[0]
        data = self.ranks.receive((num_pages, self._page_bytes // 4), debtor).view(torch.uint8).numpy()
        pages = [self.pool.allocate() for _ in range(num_pages)]
        for page, row in zip(pages, data, strict=True):
            self.pool.fill(page, row[: self.pool.block_bytes])
        self.lent[debtor, key] = pages

    def serve(self, debtor: int) -> None:
        """Answer the debtor until its step is over; returns at once if it owes nothing here."""
        while any(owner == debtor for owner, _ in self.lent):
            kind, *numbers = self._receive(debtor)
            if kind == Ask.ATTEND:
                self._answer(debtor, *numbers)
            elif kind == Ask.RETURN:
                self._free(debtor, numbers[0])
                if not any(owner == debtor for owner, _ in self.lent):
                    self._receive(debtor)  # END
            else:
                return

    def _answer(self, debtor: int, layer: int, key: int, num_queries: int) -> None:
        heads, width = self._sizes
        q = self.ranks.receive((1, heads, num_queries, width), debtor)
        pages = self.lent[debtor, key]
        num_held = len(pages) * self.pool.page_size
        past = Past(np.array([pages], np.int32), np.array([num_held]))
        slots = Slots(num_held, num_held, num_queries)
        part = self.pool.memories[layer].attend_part(q, past, self.config.attention_rule(layer), slots)
        self.ranks.send(torch.cat([part.out, part.lse[..., None]], -1), [debtor])

    def _free(self, debtor: int, key: int) -> None:
        for page in self.lent.pop((debtor, key)):
            self.pool.release(page)

    # ---- messages

    @property
    def _page_bytes(self) -> int:
        """Whole float32 values"""
        return -(-self.pool.block_bytes // 4) * 4

    def _send(self, rank: int, *numbers: int) -> None:
        message = torch.zeros(4, dtype=torch.int32)
        message[: len(numbers)] = torch.tensor(numbers, dtype=torch.int32)
        self.ranks.send(message.view(torch.float32), [rank])

    def _receive(self, rank: int) -> list[int]:
        return self.ranks.receive([4], rank).view(torch.int32).tolist()
