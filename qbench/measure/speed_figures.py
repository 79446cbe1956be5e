"""`Speed`: the figures of a speed case, and the bounds that they are compared with; memory limits and steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from qbench.measure.quality_figures import Interval
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


ByPhase = dict[str, list[float]]  # "pp_tok_s", "tg_tok_s" -> one value per sample


@dataclass(frozen=True, slots=True)
class Spread(JsonRow):
    """The middle and the ends of some samples. mad: median absolute deviation"""

    median: float | None = None
    mad: float | None = None
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class Samples(JsonRow):
    """The raw samples of both phases, and how the machine was meanwhile.

    warm_up           samples that do not count
    outliers          indices among those that count
    stopped           why there are no more
    interleaved_with  the other models or cases that took turns with this one
    """

    json_omits: ClassVar[tuple[str, ...]] = ("interleaved_with",)

    pp_tok_s: list[float] | None = None
    tg_tok_s: list[float] | None = None
    warm_up: ByPhase | None = None
    outliers: dict[str, list[int]] | None = None
    clock_mhz: dict[str, list[float | None]] | None = None
    temperature_c: dict[str, list[float | None]] | None = None
    load: dict[str, list[float | None]] | None = None
    busy_by_others: dict[str, list[float | None]] | None = None
    stopped: str | None = None
    interleaved_with: list[str] | None = None

    def of(self, phase: str) -> list[float]:
        """The samples of "pp" or "tg"; empty if the phase was not measured."""
        return (self.pp_tok_s if phase == "pp" else self.tg_tok_s) or []


@dataclass(frozen=True, slots=True)
class Energy(JsonRow):
    """Joules of one repetition by phase and counter, without those of the idle machine; or the reason for None."""

    json_omits: ClassVar[tuple[str, ...]] = ("idle_watts",)

    joules: dict[str, dict[str, float]] | None = None
    idle_watts: dict[str, float] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SpeedFigures(JsonRow):
    """Medians, with their intervals, spread and raw samples; None for a phase that was not measured.

    pp_tok_s, tg_tok_s  of all sequences together
    ttft_ms             of a prefill of all sequences
    tpot_ms             from one token to the next of a sequence
    interval            95 %, of the median; None for fewer than 6 samples
    timed_seconds       of all samples, those of the warm-up included
    kv_bytes_held       size of the KV cache of all sequences after the last pass
    kv_peak_bytes       its largest size in any pass, if a policy evicts tokens
    tokens_read         tokens that attention read per KV head and decode step, if a policy chooses them: the mean over
                        layers, sequences and steps
    kv_blocks_loaded    blocks of keys and values that a decode step read from the disk, in vain or not, and
                        kv_bytes_read: their bytes; means over steps; None unless the cache has a disk
    kv_hit_share        share of the blocks which decode steps needed that were in memory
    """

    json_omits: ClassVar[tuple[str, ...]] = (
        "kv_bytes_held",
        "kv_peak_bytes",
        "tokens_read",
        "kv_blocks_loaded",
        "kv_bytes_read",
        "kv_hit_share",
    )

    pp_tok_s: float | None = None
    tg_tok_s: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    interval: dict[str, Interval] | None = None
    spread: dict[str, Spread | None] | None = None
    samples: Samples | None = None
    energy: Energy | None = None
    timed_seconds: float | None = None
    kv_bytes_held: int | None = None
    kv_peak_bytes: int | None = None
    tokens_read: float | None = None
    kv_blocks_loaded: float | None = None
    kv_bytes_read: float | None = None
    kv_hit_share: float | None = None


@dataclass(frozen=True, slots=True)
class Roofline(JsonRow):
    """Share of the roofline reached by pp and tg (1 is the bound), with the terms that it comes from.

    bandwidths_bytes_per_s  one per round; empty if a cache holds all bytes
    bandwidth_bytes_per_s   their median
    bandwidth_of            "round": shares as in `qbench.speed.shares`; absent from older records, whose shares divide
                            by the larger of two bandwidths, one read before the case and one after it
    pp_ops, tg_ops          by operands, as in `qbench.speed.units`
    peak_ops_per_s, units   of the strongest unit that could do the job, by operands, and its name; older records name
                            no unit: theirs are by the arithmetic that ran
    """

    json_omits: ClassVar[tuple[str, ...]] = ("bandwidths_bytes_per_s", "bandwidth_of", "units")

    pp: float | None = None
    tg: float | None = None
    pp_ops: dict[str, float] | None = None
    tg_ops: dict[str, float] | None = None
    tg_bytes: dict[str, float] | None = None
    bandwidth_bytes_per_s: float | None = None
    peak_ops_per_s: dict[str, float] | None = None
    bandwidths_bytes_per_s: list[float] | None = None
    bandwidth_of: str | None = None
    units: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MachinePeaks(JsonRow):
    """Measured operation rates of the machine. Fields as in `qbench.speed.machine_peaks`.

    bandwidths   of older records; later ones keep one per round in `roofline`
    units        absent from older records
    """

    json_omits: ClassVar[tuple[str, ...]] = ("bandwidths", "units")

    threads: int | None = None
    bandwidths: tuple[float, ...] = ()
    ops_per_s: dict[str, float] | None = None
    busy_by_others: float | None = None
    time: float | None = None
    cache_bytes: int = 0
    units: dict[str, str] | None = None
    measured_s_ago: float | None = None


@dataclass(frozen=True, slots=True)
class Speed(JsonRow):
    """A speed case, its figures, and the bounds that they are compared with.

    cache            layout of the KV cache, if another than dynamic
    policy           of the KV cache, if another than full
    peaks            of the machine, under the key `machine_peaks`
    predicted_bytes  of memory, by part
    clock, ratio     of several models that took turns: the clock, and this one's speed over the first's
    offload          under a memory limit; tg's roofline is then the disk's
    not_interleaved  why cases of one command ran one after another; None: they took turns, or there is one case
    """

    json_keys: ClassVar = {"peaks": "machine_peaks"}
    json_omits: ClassVar[tuple[str, ...]] = ("cache", "policy", "clock", "offload", "not_interleaved")
    json_flat: ClassVar[tuple[str, ...]] = ("figures",)

    context: int | None = None
    batch: int | None = None
    pp: int | None = None
    tg: int | None = None
    depth: int | None = None
    figures: SpeedFigures | None = None
    roofline: Roofline | None = None
    peaks: MachinePeaks | None = None
    kv_bytes_per_token: float | None = None
    predicted_bytes: dict[str, int] | None = None
    load_average: dict[str, list[float]] | None = None
    cache: str | None = None
    policy: str | None = None
    clock: str | None = None
    offload: Offload | None = None
    not_interleaved: str | None = None


@dataclass(frozen=True, slots=True)
class StepTime(JsonRow):
    """Seconds of a decode step, predicted or measured.

    compute_s   step_s without the waits: with the processor time of the reads that run meanwhile
    wait_s      that computation waits for weights
    disk_s      during which the disk reads
    """

    step_s: float = 0.0
    compute_s: float = 0.0
    wait_s: float = 0.0
    disk_s: float = 0.0
    disk_bytes: float = 0.0

    @classmethod
    def median_of(cls, steps: Sequence["StepTime"]) -> "StepTime":
        """The median of each part."""
        return cls(*(median(getattr(one, part) for one in steps) for part in cls.__slots__))
