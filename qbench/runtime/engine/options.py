"""EngineOptions: how much memory, how many at once, in which order."""

from dataclasses import dataclass

from quant.errors import InputError

RECOMPUTE, SWAP = PREEMPT = ("recompute", "swap")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of an engine.

    page_size       tokens of a page
    num_pages         pages of the pool, of all layers and heads; None: as many as memory_bytes hold
    max_batch         sequences that run at once
    prefill_chunk     tokens of prompts computed in a step, in addition to one of each sequence that is past its prompt
    max_queue         requests that wait, at most
    prefix_caching    whether computed pages are kept and shared by requests that begin with the same tokens
    prefix_max_age_s  how long a page may be shared after it was computed; None: until its memory is needed
    max_overtakes     later requests that may be started before one that waits, because their prefix is there
    preempt           how a preempted request gets its pages again: "recompute" or "swap"
    swap_bytes        of pages that are swapped out, at most; whoever finds no room there computes again
    swap_disk_bytes   bytes of a disk for pages that find no room in swap_bytes
    """

    page_size: int = 16
    num_pages: int | None = None
    memory_bytes: int = 1 << 30
    max_batch: int = 32
    prefill_chunk: int = 256
    max_queue: int = 1024
    prefix_caching: bool = True
    prefix_max_age_s: float | None = None
    max_overtakes: int = 16
    preempt: str = RECOMPUTE
    swap_bytes: int = 1 << 30
    swap_disk_bytes: int = 0

    def __post_init__(self) -> None:
        least = {"page_size": 1, "memory_bytes": 1, "max_batch": 1, "prefill_chunk": 2, "max_queue": 1}
        least |= {"max_overtakes": 0, "num_pages": 1, "prefix_max_age_s": 0, "swap_bytes": 1, "swap_disk_bytes": 0}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and not value >= minimum:
                raise InputError(f"{name} is {value}, expected at least {minimum}")
        if self.preempt not in PREEMPT:
            raise InputError(f"preempt is {self.preempt!r}, expected one of {', '.join(PREEMPT)}")
