"""The share of a memory limit that weights get: the limit less the process, keys and values, and activations."""

import math
import os
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from qbench.run_options import RunOptions
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.step import Step
from qbench.runtime.memory import MemoryPredictor
from quant.errors import InputError
from quant.present import present
from quant.source import Source

# Kept free for page tables, thread stacks, and growth of the heap between two looks at the process.
MARGIN_BYTES = 48 << 20
# That a process grows by from here to its first forward pass: norms, layers, caches. Measured: 12 to 15 MiB.
BUILDING_BYTES = 16 << 20
MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class Use:
    """The largest forward pass to come.

    num_tokens   of a sequence that pass at once, at most
    capacity     tokens of a sequence that the cache has room for; 0: no cache
    """

    num_tokens: int = 1
    batch: int = 1
    capacity: int = 0


class Budget:
    """Shares of a limit. The process is looked at before each forward pass, so that growth makes weights give way.

    limit_bytes   of the whole process
    """

    def __init__(self, source: Source, options: RunOptions, impl: str) -> None:
        self.limit_bytes = present(options.memory_bytes)
        self._spec = options.cache_spec
        self._predictor = MemoryPredictor(source, impl=impl, spec=self._spec, attention=options.attention)
        self._capacity: WeakKeyDictionary[Cache, int] = WeakKeyDictionary()
        self._others: WeakKeyDictionary[Cache, int] = WeakKeyDictionary()

    def expect(self, cache: Cache, capacity: int, resident_bytes: int) -> None:
        """Room for so many tokens of each sequence is kept; resident_bytes: of units that the process holds now"""
        self._capacity[cache], self._others[cache] = capacity, rss_bytes() - resident_bytes

    def weight_bytes(self, cache: Cache, step: Step, resident_bytes: int) -> int:
        """Bytes for weights in this forward pass; resident_bytes: of units that the process holds now"""
        others = rss_bytes() - resident_bytes
        batch = cache.batch
        num_tokens = -(-step.tokens.numel() // batch)
        activations = self._predictor.workspace_bytes(num_tokens, batch)
        capacity = max(self._capacity.get(cache, 0), step.end)
        in_cache = self._cache_bytes(capacity, batch) if cache in self._capacity else 0
        to_come = in_cache * (capacity - step.seq_len) // capacity
        # A cache may be in memory whole after its first token, and the heap keeps blocks of activations: neither counts
        # a second time.
        grown = others - self._others.get(cache, others)
        to_come = min(to_come + activations, max(0, in_cache + activations - grown))
        return self.limit_bytes - others - to_come - MARGIN_BYTES

    def check(self, least_bytes: int, use: Use) -> None:
        """Refuse a limit before anything is written or read.

        least_bytes   of weights that have to be in memory together
        raises        InputError that names the smallest limit
        """
        passing = self._predictor.cache.tokens_per_forward(use.num_tokens, None)
        others = rss_bytes() + BUILDING_BYTES + self._predictor.workspace_bytes(passing, use.batch)
        others += self._cache_bytes(use.capacity, use.batch) if use.capacity else 0
        missing = others + MARGIN_BYTES + least_bytes - self.limit_bytes
        if missing > 0:
            raise InputError(self.too_small(missing))

    def _cache_bytes(self, capacity: int, batch: int) -> int:
        return self._spec.ram_bytes(self._predictor.cache.size_bytes(capacity, batch))

    def must_place(self, placed_bytes: int, free_bytes: int) -> bool:
        """Less than was placed by a part of the margin, or much more."""
        return free_bytes < placed_bytes - MARGIN_BYTES // 2 or free_bytes > placed_bytes + placed_bytes // 8

    def too_small(self, missing_bytes: int) -> str:
        enough = math.ceil((self.limit_bytes + missing_bytes) / MEBI)
        return (
            f"--memory {self.limit_bytes // MEBI}MiB is too little for one layer of this model next to its cache and "
            f"activations; the smallest that works here is {enough}MiB"
        )


def rss_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
