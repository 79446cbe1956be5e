"""`Instance`: the engine of one rank, which borrows pages of other ranks for requests that outgrow its pool."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Self

import torch
from torch import Tensor

from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.engine import Engine, EngineOptions, Event, NeverFits, Request
from qbench.runtime.engine.engine import pages_of_pool
from qbench.runtime.engine.options import RECOMPUTE
from qbench.runtime.engine.state import RequestState
from qbench.runtime.lending.desk import Desk
from qbench.runtime.lending.lent_caches import LentCaches
from qbench.runtime.lending.lent_sequence import LentSequence
from qbench.runtime.model import Model
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.text.tokenizer import Tokenizer
from quant.errors import InputError
from quant.present import present


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


class Instance:
    """Each rank has the whole model, a pool of its own and requests of its own. All ranks call `round` equally often.

    options  the same on all ranks, without prefix caching, and with preempt "recompute"; chunks of prompts take at
             most a half of the pool
    num_borrowed, num_lent  pages since the instance was made
    """

    def __init__(self, model: Model, options: EngineOptions, ranks: Ranks, tokenizer: Tokenizer | None = None) -> None:
        if options.prefix_caching or options.preempt != RECOMPUTE:
            raise InputError(
                f"instances share no prefixes and swap no pages; got prefix_caching {options.prefix_caching} and "
                f"preempt {options.preempt}, expected False and {RECOMPUTE}"
            )
        # A chunk that is larger than the pool could not begin: pages are borrowed for requests that run.
        most = max(2, pages_of_pool(model, options) * options.page_size // 2)
        options = replace(options, prefill_chunk=min(options.prefill_chunk, most))
        self.ranks = ranks
        self.engine = Engine(model, options, tokenizer, make_caches=self._make_caches)
        self.num_borrowed = self.num_lent = self._num_rounds = 0

    def _make_caches(self, maker: CacheMaker, pool: PagePool, max_chunk_tokens: int) -> LentCaches:
        self.desk = Desk(self.ranks, pool)
        return LentCaches(maker, pool, max_chunk_tokens, self.desk)

    def submit(self, request: Request) -> int:
        """As `Engine.submit`. raises NeverFits for a request that the pools of all ranks cannot hold together"""
        self.check_fits(len(request.tokens) + request.max_new_tokens)
        return self.engine.submit(request)

    def check_fits(self, num_tokens: int) -> None:
        """raises NeverFits for a request of so many tokens that the pools of all ranks cannot hold together"""
        pool = self.engine.pool
        num_pages = pool.num_pages * self.ranks.layout.num_ranks
        if num_tokens > num_pages * pool.page_size:
            raise NeverFits(
                f"{num_tokens} tokens, but all instances together have {num_pages} pages of {pool.page_size}"
            )

    @property
    def num_still_lent(self) -> int:
        """Pages that hold tokens of other instances now"""
        return sum(map(len, self.desk.lent.values()))

    def round(self) -> list[Event] | None:
        """A step of this rank's engine, and the answers to the steps of its debtors; None if no rank has work left.

        raises   RankError for a rank that ended or is late
        """
        ranks, desk = self.ranks, self.desk
        self._num_rounds += 1
        ranks.meeting.place = f"in round {self._num_rounds}"
        statuses = [Status.of_tensor(numbers) for numbers in ranks.gather(self._status().to_tensor())]
        if not any(status.batch for status in statuses):
            return None
        loans = plan_loans(statuses)
        for loan in loans:
            if loan.debtor == ranks.rank:
                desk.borrow(present(self._longest()), loan.creditor, loan.num_pages)
                self.num_borrowed += loan.num_pages
            elif loan.creditor == ranks.rank:
                desk.lend(loan.debtor, loan.num_pages)
                self.num_lent += loan.num_pages
        events: list[Event] = []
        for rank in range(ranks.layout.num_ranks):
            if rank == ranks.rank:
                if not self._waits(statuses, loans):
                    events = self.engine.step()
                desk.end_step()
            else:
                desk.serve(rank)
        return events

    def _waits(self, statuses: Sequence[Status], loans: Sequence[Loan]) -> bool:
        """Whether pages are missing that others may still free: a step would end or preempt a request."""
        missing = statuses[self.ranks.rank].missing
        got = sum(loan.num_pages for loan in loans if loan.debtor == self.ranks.rank)
        return got < missing and any(status.batch and not status.missing for status in statuses)

    def _status(self) -> Status:
        scheduler, pool = self.engine.scheduler, self.engine.pool
        kept = sum(self._most_own_pages(state) for state in (*scheduler.running, *scheduler.waiting))
        missing = max(0, sum(map(self._next_pages, scheduler.running)) - pool.num_free)
        longest = self._longest()
        movable = 0 if longest is None else longest.num_movable
        batch = len(scheduler.running) + len(scheduler.waiting) + bool(self.engine.has_work)
        return Status(batch, max(0, pool.num_free - kept), missing, movable)

    def _longest(self) -> LentSequence | None:
        """The sequence with most full pages of its own"""
        sequences = [_sequence(state) for state in self.engine.scheduler.running]
        return max(sequences, key=lambda sequence: sequence.num_movable, default=None)

    def _most_own_pages(self, state: RequestState) -> int:
        """Pages that the request may still take"""
        request, size = state.request, self.engine.pool.page_size
        most = -(-(len(request.tokens) + request.max_new_tokens) // size)
        return most if state.sequence is None else most - len(state.sequence.pages)

    def _next_pages(self, state: RequestState) -> int:
        """Pages that the request takes in the next step"""
        sequence, caches, size = _sequence(state), self.engine.caches, self.engine.pool.page_size
        count = caches.num_next(state.num_computed, len(state.request.tokens), len(state.tokens))
        return max(0, -(-(sequence.num_slots + count) // size) - len(sequence.pages))


def _sequence(state: RequestState) -> LentSequence:
    assert isinstance(state.sequence, LentSequence)
    return state.sequence


def run_until_done(instance: Instance) -> list[Event]:
    """All events of this rank's requests."""
    events: Sequence[Event] | None
    found: list[Event] = []
    while (events := instance.round()) is not None:
        found += events
    return found
