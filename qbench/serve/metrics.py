"""Metrics for Prometheus: times as clients see them, and the state of the engine."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from qbench.runtime.engine import EngineStats

TTFT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)  # seconds
TPOT_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

# EngineStats field -> metric, its help text
GAUGES = {
    "queued": ("qbench_requests_queued", "Requests that wait"),
    "running": ("qbench_requests_running", "Requests that run"),
    "free_pages": ("qbench_pages_free", "Pages of the KV cache that a request can have at once"),
    "num_pages": ("qbench_pages", "Pages of the KV cache"),
    "prefix_pages": ("qbench_prefix_pages", "Pages that are kept for prompts that begin alike"),
    "swap_pages": ("qbench_swap_pages", "Pages of preempted requests that are out of the pool"),
    "swap_disk_pages": ("qbench_swap_disk_pages", "Pages among them that are on the disk"),
    "held_slots": ("qbench_policy_slots", "Slots of all layers in pages of requests whose policy evicts by attention"),
    "evicted_slots": ("qbench_policy_evicted_slots", "Those of them whose page stays, as another layer holds it"),
}
COUNTERS = {
    "prefix_hit_tokens": ("qbench_prefix_hit_tokens", "Tokens of prompts that were found computed"),
    "prefix_lookup_tokens": ("qbench_prefix_lookup_tokens", "Tokens of prompts that were looked up"),
    "preemptions": ("qbench_preemptions", "Times that a request was preempted"),
    "swapped_out": ("qbench_swapped_out_pages", "Pages of preempted requests that were copied out of the pool"),
    "swapped_in": ("qbench_swapped_in_pages", "Pages of preempted requests that were copied back"),
    "steps": ("qbench_steps", "Forward passes"),
    "computed_tokens": ("qbench_computed_tokens", "Tokens that went through the model"),
    "generated_tokens": ("qbench_generated_tokens", "Tokens that were drawn"),
}
# Key of StoreStats -> metric and its help text; present if the engine has a block store
STORE_GAUGES = {"waiting_blocks": ("qbench_kv_store_waiting_blocks", "Pages that wait to be written to the KV store")}
STORE_COUNTERS = {
    "hits": ("qbench_kv_store_hits", "Requests that got pages from the KV store"),
    "hit_tokens": ("qbench_kv_store_hit_tokens", "Tokens of those pages"),
    "loaded_bytes": ("qbench_kv_store_loaded_bytes", "Bytes of those pages"),
    "load_s": ("qbench_kv_store_load_seconds", "Time from asking for pages to their arrival"),
    "slow_hits": ("qbench_kv_store_slow_hits", "Hits that took longer than computing the tokens would have"),
    "written_bytes": ("qbench_kv_store_written_bytes", "Bytes written to the KV store"),
    "written_blocks": ("qbench_kv_store_written_blocks", "Pages written to the KV store"),
    "evicted_blocks": ("qbench_kv_store_evicted_blocks", "Pages evicted to keep the KV store in its limit"),
    "corrupt_blocks": ("qbench_kv_store_corrupt_blocks", "Pages whose checksum was wrong, which are computed again"),
    "skipped_blocks": ("qbench_kv_store_skipped_blocks", "Times that a page was not written as too many wait"),
    "errors": ("qbench_kv_store_errors", "Operations that the KV store's disk refused"),
}
SAVED = "qbench_kv_store_saved_seconds", "Time that computing would have taken more than loading; a loss is negative"


class Metrics:
    """stats: the engine's latest; written by its thread, read by whoever asks"""

    def __init__(self, stats: EngineStats) -> None:
        self.stats = stats
        self._registry = CollectorRegistry()
        self._ttft = Histogram(
            "qbench_time_to_first_token_seconds", "From a request to its first token",
            registry=self._registry, buckets=TTFT_BUCKETS,
        )  # fmt: skip
        self._tpot = Histogram(
            "qbench_time_per_output_token_seconds", "From a token to the next",
            registry=self._registry, buckets=TPOT_BUCKETS,
        )  # fmt: skip
        self._requests = Counter("qbench_requests", "Requests that are over", ["ended_by"], registry=self._registry)
        self._registry.register(self)

    def token(self, seconds: float, *, is_first: bool) -> None:
        (self._ttft if is_first else self._tpot).observe(seconds)

    def ended(self, by: str) -> None:
        """by: stop, length, abort or failed; refused: because of the request itself, or because the server is full"""
        self._requests.labels(by).inc()

    def text(self) -> bytes:
        """In Prometheus' exposition format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics of the engine, as prometheus_client asks a collector."""
        stats = self.stats
        for field, (name, text) in GAUGES.items():
            yield GaugeMetricFamily(name, text, value=getattr(stats, field))
        for field, (name, text) in COUNTERS.items():
            yield CounterMetricFamily(name, text, value=getattr(stats, field))
        if stats.store is not None:
            store = stats.store.to_json()
            for field, (name, text) in STORE_GAUGES.items():
                yield GaugeMetricFamily(name, text, value=store[field])
            for field, (name, text) in STORE_COUNTERS.items():
                yield CounterMetricFamily(name, text, value=store[field])
            yield GaugeMetricFamily(*SAVED, value=stats.store.saved_s)
