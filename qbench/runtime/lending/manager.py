"""The global manager: which instance lends how many pages to which one, by a greedy rule."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Status:
    """The report of an instance in each round.

    batch    requests that run or wait
    spare    free pages that its own requests will not need
    missing  pages that its requests lack in the next step
    movable  full pages of its longest request, which may move to another instance
    """

    batch: int
    spare: int
    missing: int
    movable: int

    def to_tensor(self) -> Tensor:
        """[4] float32, exact up to 2**24"""
        return torch.tensor(astuple(self), dtype=torch.float32)

    @classmethod
    def of_tensor(cls, numbers: Tensor) -> Self:
        return cls(*(int(number) for number in numbers))


@dataclass(frozen=True, slots=True)
class Loan:
    """The debtor's longest request moves its oldest pages to the creditor."""

    debtor: int
    creditor: int
    num_pages: int


def plan_loans(statuses: Sequence[Status]) -> list[Loan]:
    """The debtor with the smallest batch comes first, and the creditor with the most room lends first.

    An instance that lacks pages does not lend in the same round.

    source     of the idea: Lin et al. 2024 (Infinite-LLM), arXiv:2401.02669: a global manager, and a greedy schedule by
               a model of throughput
    deviation  The order of debtors and creditors is our own rule; nobody has compared it with the paper's algorithm.
               There is no model of throughput: pages move only if a request cannot go on without them, so that a
               request that fits stays on one rank.
    """
    spare = {rank: status.spare for rank, status in enumerate(statuses) if not status.missing}
    debtors = [rank for rank, status in enumerate(statuses) if status.missing]
    loans = []
    for debtor in sorted(debtors, key=lambda rank: (statuses[rank].batch, rank)):
        missing = min(statuses[debtor].missing, statuses[debtor].movable)
        while missing and any(spare.values()):
            creditor = max(spare, key=lambda rank: (spare[rank], -rank))
            loan = Loan(debtor, creditor, min(missing, spare[creditor]))
            loans.append(loan)
            spare[creditor] -= loan.num_pages
            missing -= loan.num_pages
    return loans
