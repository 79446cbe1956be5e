"""`Metrics`: the measured figures of a model, by part: the facts of the run, its speed, its memory and its quality."""

from dataclasses import dataclass
from typing import ClassVar

from qbench.measure.launch import Launch
from qbench.measure.quality_figures import Quality, TaskResult
from qbench.measure.rank_figures import RankFigures
from qbench.measure.speed_figures import Speed
from quant.json_data import JsonRow


@dataclass(frozen=True, slots=True)
class Facts(JsonRow):
    """The facts that results of every kind begin with.

    kv_format  of the KV cache; None: floats
    impls      implementation -> number of linears that it runs, the commonest first
    kernels    the code that runs next to the linears, on devices that report it
    forced     the switches of the environment that the kernels obey
    policy     tokens that the KV cache keeps; None: full
    prefill_chunk  tokens of a prompt per forward pass, at most; None: all
    attention  the code that computes it, if one was chosen
    prefill    pattern of prefills; None: dense
    prefill_blocks  share of the causal blocks that prefills computed, mean over layers and prompts
    prefill_mass    share of the dense attention weights on tokens that prefills computed, likewise, if it was measured
    tuning     the table of `qbench tune` whose switch points held; None: the shipped ones
    """

    json_omits: ClassVar[tuple[str, ...]] = (
        "kernels",
        "policy",
        "prefill_chunk",
        "attention",
        "prefill",
        "prefill_blocks",
        "prefill_mass",
        "tuning",
    )

    model: str | None = None
    recipe: str | None = None
    artifact: str | None = None
    size_bytes: int | None = None
    num_weights: int | None = None
    bits_per_weight: float | None = None
    bits_per_weight_by_part: dict[str, float | None] | None = None
    kv_format: str | None = None
    policy: str | None = None
    prefill_chunk: int | None = None
    attention: str | None = None
    prefill: str | None = None
    prefill_blocks: float | None = None
    prefill_mass: float | None = None
    compute: str | None = None
    impls: dict[str, int] | None = None
    kernels: dict[str, str] | None = None
    isa: str | None = None
    device: str | None = None
    threads: int | None = None
    forced: str | None = None
    affinity: str | None = None
    numa_nodes: list[int] | None = None
    machine: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    code: str | None = None
    tuning: str | None = None


@dataclass(frozen=True, slots=True)
class Memory(JsonRow):
    """Peaks of the measuring process: since it loaded the model, or since its start if a peak cannot be reset.

    cases_at_once  number of cases that took turns and held their caches meanwhile; None: one case
    """

    json_omits: ClassVar[tuple[str, ...]] = ("peak_device_bytes", "cases_at_once")

    peak_rss_bytes: int | None = None
    peak_device_bytes: int | None = None
    peak_rss_since: str | None = None
    baseline_rss_bytes: int | None = None
    cases_at_once: int | None = None


TIMES = (
    "peaks_seconds",
    "load_seconds",
    "wall_seconds",
    "overhead_seconds",
    "reference_seconds",
    "quantize_seconds",
    "quantize_peak_rss_bytes",
)


@dataclass(frozen=True, slots=True)
class Metrics(JsonRow):
    """One measurement. A part is None if it was not measured.

    ranks        of a model that is divided among ranks
    reference    the model that the divergence is from
    protocols    name -> quality, if several protocols were asked for; `quality` is the first
    ratio        phase -> how many times as fast as the first of several models or cases that took turns
    ratio_to     the name of the first, if cases of one model took turns
    launches     of a gate: samples of fresh processes
    peaks_seconds  of measuring the machine's peaks, under the key `machine_peaks_seconds`
    seconds      of the whole
    """

    json_omits: ClassVar[tuple[str, ...]] = (
        "ranks",
        "reference",
        "protocols",
        "tasks",
        "ratio",
        "ratio_to",
        "launches",
        "timed_seconds",
        "seconds",
        *TIMES,
    )
    json_keys: ClassVar = {"peaks_seconds": "machine_peaks_seconds"}
    json_flat: ClassVar[tuple[str, ...]] = ("facts", "speed", "memory", "quality")

    facts: Facts | None = None
    speed: Speed | None = None
    memory: Memory | None = None
    ranks: RankFigures | None = None
    reference: str | None = None
    quality: Quality | None = None
    protocols: dict[str, Quality] | None = None
    tasks: dict[str, TaskResult] | None = None
    ratio: dict[str, dict[str, float | None]] | None = None
    ratio_to: str | None = None
    launches: list[Launch] | None = None
    timed_seconds: float | None = None
    peaks_seconds: float | None = None
    load_seconds: float | None = None
    wall_seconds: float | None = None
    overhead_seconds: float | None = None
    reference_seconds: float | None = None
    quantize_seconds: float | None = None
    quantize_peak_rss_bytes: int | None = None
    seconds: float | None = None

    def figure(self, name: str) -> float | None:
        """A number by its key in records, of whichever part has it."""
        figures = self.speed and self.speed.figures
        for part in (self.speed, figures, self.memory, self.quality, self.facts, self):
            if part is not None and hasattr(part, name):
                return getattr(part, name)
        return None
