"""The share of a memory limit that weights get: the limit less the process, keys and values, and activations.

A limit is checked against each phase before anything is written:

    write    process | blocks of rows as read, packed and as bytes            the file of streamed weights
    build    process | weights that always stay | the largest of them twice   before the first forward pass
    pass     process | weights that always stay | units | KV | activations    and the logits that an evaluation scores
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from qbench.run.choices import IN_TORCH
from qbench.run.options import RunOptions
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.step import Step
from qbench.runtime.memory import MemoryPredictor
from qbench.runtime.offload.placement import least_bytes
from qbench.runtime.offload.stream_file import WHOLE_COPIES
from qbench.runtime.offload.units import Unit
from qbench.runtime.workspace import torch_attention_bytes
from quant.calibration.memory import release_free_memory
from quant.errors import InputError
from quant.models import EMBEDDING, expected_tensors
from quant.present import present
from quant.source import Source

# Kept free for page tables, thread stacks, and growth of the heap between two looks at the process.
MARGIN_BYTES = 48 << 20
# That a process grows by from here to its first forward pass: norms, layers, caches. Measured: 12 to 15 MiB.
BUILDING_BYTES = 16 << 20
# By which two processes differ before they load anything: pages of libraries, and the heap of a parsed vocabulary. A
# refusal names a limit that is larger by this, so that the next process fits into it.
VARIES_BYTES = 16 << 20
MEBI = 1 << 20
ONE_LAYER = "one layer of this model next to its cache and activations"


@dataclass(frozen=True, slots=True)
class Use:
    """The largest forward pass to come.

    num_tokens   of a sequence that pass at once, at most
    capacity     tokens of a sequence that the cache has room for; 0: no cache
    scored_bytes of outputs and logits that are compared after a pass
    """

    num_tokens: int = 1
    batch: int = 1
    capacity: int = 0
    scored_bytes: int = 0


class Budget:
    """Shares of a limit. The process is looked at before each forward pass, so that growth makes weights give way.

    limit_bytes   of the whole process
    """

    def __init__(self, source: Source, options: RunOptions, impl: str) -> None:
        self.limit_bytes = present(options.memory_bytes)
        self._attention = options.attention
        self._scored_bytes, self._before_scores = 0, 0  # to keep free, and memory without weights at that time
        self._source, self._spec = source, options.cache_spec
        self._predictor = MemoryPredictor(source, impl=impl, spec=self._spec, attention=options.attention)
        self._capacity: WeakKeyDictionary[Cache, int] = WeakKeyDictionary()
        self._others: WeakKeyDictionary[Cache, int] = WeakKeyDictionary()

    def expect(self, cache: Cache, capacity: int, resident_bytes: int) -> None:
        """Room for so many tokens of each sequence is kept; resident_bytes: of units that the process holds now"""
        self._capacity[cache], self._others[cache] = capacity, rss_bytes() - resident_bytes

    def keep_for_scores(self, scored_bytes: int, resident_bytes: int) -> None:
        """From now on keep as much free as `Use` has it. resident_bytes: of units that the process holds now"""
        self._scored_bytes, self._before_scores = scored_bytes, rss_bytes() - resident_bytes

    def weight_bytes(self, cache: Cache, step: Step, resident_bytes: int) -> int:
        """Bytes for weights in this forward pass; resident_bytes: of units that the process holds now"""
        others = rss_bytes() - resident_bytes
        batch = cache.batch
        num_tokens = -(-step.tokens.numel() // batch)
        activations = self._activation_bytes(num_tokens, batch, step.end)
        capacity = max(self._capacity.get(cache, 0), step.end)
        in_cache = self._cache_bytes(capacity, batch) if cache in self._capacity else 0
        to_come = in_cache * (capacity - step.seq_len) // capacity
        # A cache may be in memory whole after its first token, and the heap keeps blocks of activations: neither counts
        # a second time.
        grown = others - self._others.get(cache, others)
        to_come = min(to_come + activations, max(0, in_cache + activations - grown))
        scores = max(0, self._scored_bytes - max(0, others - self._before_scores))  # some are in memory already
        return self.limit_bytes - others - to_come - scores - MARGIN_BYTES

    def check(self, units: Sequence[Unit], use: Use, writing_bytes: int) -> None:
        """Refuse a limit before anything is written or read.

        writing_bytes   to write the file of the units; 0: it is there
        raises          InputError that names the smallest limit
        """
        passing = self._predictor.cache.tokens_per_forward(use.num_tokens, None)
        context = max(use.num_tokens, use.capacity)
        activations = self._activation_bytes(passing, use.batch, context) + use.scored_bytes
        in_cache = self._cache_bytes(use.capacity, use.batch) if use.capacity else 0
        staying, largest = self._staying_bytes(units)
        phases = {
            "the file of streamed weights, which is written first": writing_bytes,
            "the weights that always stay": BUILDING_BYTES + staying + WHOLE_COPIES * largest,
            ONE_LAYER: BUILDING_BYTES + staying + least_bytes(units) + in_cache + activations,
        }
        phase = max(phases, key=phases.__getitem__)
        release_free_memory()  # of a vocabulary that was parsed: tens of MiB for 128K words
        missing = rss_bytes() + phases[phase] + MARGIN_BYTES - self.limit_bytes
        if missing > 0:
            raise InputError(self.too_small(missing, phase))

    def _activation_bytes(self, num_tokens: int, batch: int, context: int) -> int:
        """Activations of a pass of so many tokens per sequence; its last token sees `context` tokens."""
        found = self._predictor.workspace_bytes(num_tokens, batch)
        if self._attention in IN_TORCH:
            found += batch * torch_attention_bytes(self._predictor.config, num_tokens, context, self._attention)
        return found

    def _staying_bytes(self, units: Sequence[Unit]) -> tuple[int, int]:
        """Bytes of all weights outside of units, as they are held, and of the largest one, as stored.

        The embedding does not count: its rows stay in the file.
        """
        config, tensors = self._predictor.config, self._source.tensors
        in_units = {linear.name: linear.size_bytes for unit in units for linear in unit.linears}
        staying = self._predictor.resident_bytes - sum(in_units.values())
        if not config.tie_word_embeddings:
            staying -= tensors[EMBEDDING].size_bytes
        others = expected_tensors(config).keys() - in_units.keys() - {EMBEDDING}
        return staying, max(tensors[name].size_bytes for name in others)

    def _cache_bytes(self, capacity: int, batch: int) -> int:
        return self._spec.ram_bytes(self._predictor.cache.size_bytes(capacity, batch))

    def free_bytes(self) -> int:
        """Bytes that the process may take now."""
        return self.limit_bytes - rss_bytes()

    def must_place(self, placed_bytes: int, free_bytes: int) -> bool:
        """Less than was placed by a part of the margin, or much more."""
        return free_bytes < placed_bytes - MARGIN_BYTES // 2 or free_bytes > placed_bytes + placed_bytes // 8

    def too_small(self, missing_bytes: int, phase: str = ONE_LAYER) -> str:
        enough = math.ceil((self.limit_bytes + missing_bytes + VARIES_BYTES) / MEBI)
        return (
            f"--memory {self.limit_bytes // MEBI}MiB is too little for {phase}; "
            f"the smallest that works here is {enough}MiB"
        )


def rss_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
