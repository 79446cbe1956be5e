"""Streamed weights in a speed measurement: the disk bounds a step, and its bandwidth is read between the rounds."""

import time
from collections.abc import Mapping
from typing import Any

from qbench.measure.host.memory import peak_rss_bytes, reset_peak_rss
from qbench.measure.speed_figures import Offload
from qbench.runtime.offload import OffloadedModel
from qbench.speed.peaks import measure_bandwidth

PROBED_BYTES = 1 << 30  # at most, between two rounds
BANDWIDTH_BYTES = 512 << 20  # that cpu_kernels read to measure the memory: roofline.cpp


class DiskProbe:
    """Measures direct reads between rounds, of the units that each forward pass reads.

    If all units stay, it measures reads of memory, and nothing if the limit has no room for that.

    peak_bytes   of this process until the last call
    seconds      that all calls took
    """

    def __init__(self, model: OffloadedModel, threads: int) -> None:
        self.model, self.threads = model, threads
        self.peak_bytes, self.seconds = 0, 0.0
        self._has_room: bool | None = None  # as in the first round, so that all rounds have a bandwidth or no one has

    def __call__(self) -> float | None:
        """Bytes per second now; None without room to measure the memory."""
        start = time.perf_counter()
        self.peak_bytes = max(self.peak_bytes, peak_rss_bytes())
        weights = self.model.weights
        is_read = weights.shares.streamed_bytes > 0 or weights.reads_experts
        if self._has_room is None:
            self._has_room = is_read or weights.budget.free_bytes() >= BANDWIDTH_BYTES
        if not self._has_room:
            return None
        found = weights.disk_bandwidth(PROBED_BYTES) if is_read else measure_bandwidth(self.threads)
        reset_peak_rss()
        self.seconds += time.perf_counter() - start
        return found


def disk_work(work: Mapping[str, Mapping[str, float]], model: OffloadedModel) -> dict[str, dict[str, float]]:
    """`work` with the bytes that a step reads from the disk in place of those from memory, if it reads any.

    A step reads the experts that its tokens choose and that are not in memory, which nobody knows before: those that
    the decode steps of the run have read count, in the mean.
    """
    streamed, routed = float(model.weights.shares.streamed_bytes), model.weights.expert_bytes_per_step
    least = {key: dict(of) for key, of in work.items()}
    read = {"linears": streamed, "norms_and_biases": 0.0} | ({"experts": routed} if routed else {})
    return least | ({"tg_bytes": read} if streamed or routed else {})


def offload_of(model: Any) -> Offload | None:
    """The shares of the memory limit; None without a limit."""
    if not isinstance(model, OffloadedModel):
        return None
    shares, experts = model.weights.shares, model.weights.experts
    return Offload(
        memory_limit_bytes=shares.limit_bytes,
        pinned_bytes=shares.pinned_bytes,
        ring_bytes=shares.ring_bytes,
        streamed_bytes=shares.streamed_bytes,
        expert_bytes=shares.expert_bytes if experts else None,
        expert_hits=experts.hits if experts else None,
        expert_misses=experts.misses if experts else None,
        expert_bytes_per_step=model.weights.expert_bytes_per_step if experts else None,
        read_bytes=model.weights.streamer.read_bytes,
    )
