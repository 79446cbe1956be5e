"""`Offload`: a memory limit in a row of speed, and how the weights share it."""

from dataclasses import dataclass

from quant.json_data import JsonRow


@dataclass(frozen=True, slots=True)
class Offload(JsonRow):
    """Bytes under a memory limit.

    pinned_bytes    of weights that stay
    ring_bytes      of the memory that the others pass through
    streamed_bytes  that each forward pass reads from the disk, without experts
    expert_bytes    of memory for routed experts; None: the model has no experts
    expert_hits     experts that a layer's call found in memory; expert_misses: those that it read
    expert_bytes_per_step  that decode steps have read of experts, in the mean
    read_bytes      since the model was loaded
    """

    memory_limit_bytes: int | None = None
    pinned_bytes: int | None = None
    ring_bytes: int | None = None
    streamed_bytes: int | None = None
    expert_bytes: int | None = None
    expert_hits: int | None = None
    expert_misses: int | None = None
    expert_bytes_per_step: float | None = None
    read_bytes: int | None = None
