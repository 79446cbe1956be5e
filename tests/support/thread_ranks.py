"""The ranks of a layout as threads of this process, so that a test needs no processes and no network."""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

import torch
from support.waits import WAIT_S
from torch import Tensor

from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from qbench.runtime.parallel.link import Link
from qbench.runtime.parallel.load import load_ranked
from qbench.runtime.parallel.meeting import Meeting
from qbench.runtime.parallel.model import RankModel
from qbench.runtime.parallel.ranks import Ranks
from quant.source import Source

Result = TypeVar("Result")


class ThreadLink(Link):
    """mail: (sender, receiver) -> tensors under way"""

    name = "threads"

    def __init__(self, rank: int, mail: dict[tuple[int, int], SimpleQueue]) -> None:
        self.rank, self.mail = rank, mail

    def exchange(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> None:
        for rank, x in sent:
            self.mail[self.rank, rank].put(x.clone())
        for rank, x in received:
            x.copy_(self.mail[rank, self.rank].get(timeout=WAIT_S))


class ThreadMeeting(Meeting):
    """mail: as of the link"""

    def __init__(self, rank: int, num_ranks: int, mail: dict[tuple[int, int], SimpleQueue]) -> None:
        self.rank, self.num_ranks, self.timeout_s, self.mail = rank, num_ranks, WAIT_S, mail
        self.place = ""

    def tell(self, topic: str, value: str) -> list[str]:
        others = [rank for rank in range(self.num_ranks) if rank != self.rank]
        for rank in others:
            self.mail[self.rank, rank].put(value)
        told = {rank: self.mail[rank, self.rank].get(timeout=WAIT_S) for rank in others}
        return [value if rank == self.rank else told[rank] for rank in range(self.num_ranks)]


def model_on(ranks: Ranks, source: Source, impl: str = "auto", path: str = "auto") -> RankModel:
    """The part of the model that this rank runs, with one thread."""
    return load_ranked(source, RunOptions(threads=1, division=str(ranks.layout)), impl, path, ranks)


def run_ranks(layout: RankLayout, work: Callable[[Ranks], Result]) -> list[Result]:
    """work(ranks) on every rank of the layout; the first error of one is raised."""
    every = range(layout.num_ranks)
    mail = {(sender, receiver): SimpleQueue() for sender in every for receiver in every}
    results, errors = {}, []

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        try:
            ranks = Ranks(layout, ThreadMeeting(rank, layout.num_ranks, mail), ThreadLink(rank, mail))
            results[rank] = work(ranks)
        except Exception as error:  # reported by the thread that waits for all of them
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in every]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    if errors:
        raise errors[0]
    return [results[rank] for rank in every]
