"""follow: a rank other than 0 runs the forward passes that rank 0 orders."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.parallel.leading import FOLLOWING
from qbench.runtime.parallel.micro_batches import GivenPages, padded
from qbench.runtime.parallel.model import RankModel
from qbench.runtime.parallel.orders import Kind, receive_order
from quant.present import present


class Follower:
    """This rank's part of the pool and of the cache that rank 0 has."""

    def __init__(self, model: RankModel) -> None:
        self.model = model
        self.pool: PagePool | None = None
        self.cache: Cache | None = None

    def obey(self, kind: Kind, arrays: Sequence[np.ndarray]) -> None:
        if kind == Kind.POOL:
            self.pool = self.model.page_pool(*arrays[0].tolist())
        elif kind == Kind.CACHE:
            batch, capacity = arrays[0].tolist()
            self.cache = self.model.new_cache(batch, capacity)
        elif kind == Kind.PASS:
            self._forward(*arrays)

    def _forward(
        self,
        flags: np.ndarray,
        tokens: np.ndarray,
        counts: np.ndarray,
        seq_lens: np.ndarray,
        pages: np.ndarray,
        copies: np.ndarray,
    ) -> None:
        if pages.size:
            pool = present(self.pool)
            for source, target in copies.tolist():
                for memory in pool.memories:
                    memory.copy_page(source, target)
            cache = KVCache(pool.config, GivenPages(pool, pages), mode=pool.mode)
            cache.seq_lens = seq_lens
        else:
            cache = present(self.cache)
            if (seq_lens < cache.seq_lens).any():
                cache.truncate(seq_lens)
        num_valid = counts if counts.size else None
        rows = tokens if num_valid is None else padded(tokens[0], counts)
        self.model(torch.from_numpy(rows), cache, last_only=bool(flags[0]), num_valid=num_valid)


def follow(model: RankModel) -> None:
    """Run the orders of rank 0 until the last. raises RankError if rank 0 ends or is late"""
    follower = Follower(model)
    with signals_ignored():
        model.ranks.meeting.tell(FOLLOWING, "")
        while True:
            kind, arrays = receive_order(model.ranks)
            if kind == Kind.END:
                return
            follower.obey(kind, arrays)


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ctrl-C and torchrun's end reach all ranks at once, and rank 0 finishes its requests first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
