"""`Metrics`: the measured figures of a model, by part: the facts of the run, its speed, its memory and its quality."""

from dataclasses import dataclass
from typing import ClassVar

from qbench.measure.launch import Launch
from qbench.measure.offload import Offload
from quant.json_data import JsonRow

Interval = list[float] | None  # 95 %
ByPhase = dict[str, list[float]]  # "pp_tok_s", "tg_tok_s" -> one value per sample


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
    """

    json_omits: ClassVar[tuple[str, ...]] = (
        "kernels",
        "policy",
        "prefill_chunk",
        "attention",
        "prefill",
        "prefill_blocks",
        "prefill_mass",
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
    interleaved_with  the other models that took turns with this one
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
    """

    json_omits: ClassVar[tuple[str, ...]] = ("kv_bytes_held", "kv_peak_bytes", "tokens_read")

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


@dataclass(frozen=True, slots=True)
class Roofline(JsonRow):
    """Share of the roofline reached by pp and tg (1 is the bound), with the terms that it comes from.

    bandwidths_bytes_per_s  one per round; empty if a cache holds all bytes
    bandwidth_bytes_per_s   their median
    bandwidth_of            "round": shares as in `qbench.speed.shares`; absent from older records, whose shares divide
                            by the larger of two bandwidths, one read before the case and one after it
    """

    json_omits: ClassVar[tuple[str, ...]] = ("bandwidths_bytes_per_s", "bandwidth_of")

    pp: float | None = None
    tg: float | None = None
    pp_ops: dict[str, float] | None = None
    tg_ops: dict[str, float] | None = None
    tg_bytes: dict[str, float] | None = None
    bandwidth_bytes_per_s: float | None = None
    peak_ops_per_s: dict[str, float] | None = None
    bandwidths_bytes_per_s: list[float] | None = None
    bandwidth_of: str | None = None


@dataclass(frozen=True, slots=True)
class MachinePeaks(JsonRow):
    """Measured operation rates of the machine. Fields as in `qbench.speed.machine_peaks`.

    bandwidths   of older records; later ones keep one per round in `roofline`
    """

    json_omits: ClassVar[tuple[str, ...]] = ("bandwidths",)

    threads: int | None = None
    bandwidths: tuple[float, ...] = ()
    ops_per_s: dict[str, float] | None = None
    busy_by_others: float | None = None
    time: float | None = None
    cache_bytes: int = 0
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
    """

    json_keys: ClassVar = {"peaks": "machine_peaks"}
    json_omits: ClassVar[tuple[str, ...]] = ("cache", "policy", "clock", "offload")
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


@dataclass(frozen=True, slots=True)
class Memory(JsonRow):
    """Peaks of the measuring process: since it loaded the model, or since its start if a peak cannot be reset."""

    json_omits: ClassVar[tuple[str, ...]] = ("peak_device_bytes",)

    peak_rss_bytes: int | None = None
    peak_device_bytes: int | None = None
    peak_rss_since: str | None = None
    baseline_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Blocks(JsonRow):
    """Sums over each block of text, in its order; units: its words or bytes, if the protocol counts those."""

    json_omits: ClassVar[tuple[str, ...]] = ("units", "kld", "same_top")

    unit: str | None = None
    tokens: list[int] | None = None
    units: list[int] | None = None
    nll: list[float] | None = None
    kld: list[float] | None = None
    same_top: list[float] | None = None


@dataclass(frozen=True, slots=True)
class KLDBin(JsonRow):
    """Mean KLD of the tokens between two positions, or two confidences."""

    low: float
    high: float
    mean: float
    count: int


@dataclass(frozen=True, slots=True)
class KLDReference(JsonRow):
    """How the reference's logits were kept, and how far the mean KLD may be from that of the whole logits."""

    mode: str | None = None
    k: int | None = None
    bytes: int | None = None
    error_bound_nats: float | None = None
    error_nats: float | None = None


@dataclass(frozen=True, slots=True)
class ProtocolFacts(JsonRow):
    """A protocol as records keep it: every field of `Protocol` that says something, and the hash."""

    json_omits: ClassVar[tuple[str, ...]] = ("unit", "documents", "num_documents", "compute")

    name: str | None = None
    window: int | None = None
    stride: int | None = None
    scored: str | None = None
    bos: str | None = None
    dtype: str | None = None
    num_windows: int | None = None
    text_windows: int | None = None
    data_sha256: str | None = None
    tokens_sha256: str | None = None
    unit: str | None = None
    documents: str | None = None
    num_documents: int | None = None
    compute: str | None = None
    hash: str | None = None


KLD_KEYS = (
    "kld",
    "kld_error",
    "kld_interval",
    "kld_by_position",
    "kld_by_confidence",
    "same_top",
    "mean_delta_p",
    "delta_p",
    "non_finite_kld",
    "kld_reference",
    "llama_perplexity",
)


@dataclass(frozen=True, slots=True)
class AttentionDelta(JsonRow):
    """Distance from the same model with textbook attention, over the scored tokens; KLD in nats.

    max_logit   largest absolute difference of two logits
    same_top    share of the tokens that both rank first
    """

    max_logit: float | None = None
    mean_kld: float | None = None
    max_kld: float | None = None
    same_top: float | None = None
    num_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class NonFinite(JsonRow):
    """The first activation that is NaN or inf: in which window, at which token of it, and after which part.

    part   "embedding", "attention" or "feed-forward net" of the layer, "head"; None: the model was not run by layers
    """

    json_omits: ClassVar[tuple[str, ...]] = ("layer", "part")

    window: int
    token: int
    kind: str
    layer: int | None = None
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Quality(JsonRow):
    """Quality under one protocol; None for a statistic that a logit which is not finite takes away.

    nll        mean over the tokens, in nats
    kld        of the next-token distribution from the reference's: mean, median and quantiles, in nats
    same_top   share of the tokens that both rank first
    attention_delta  if attention was chosen, other than textbook attention
    non_finite_at    if a logit is not finite
    """

    json_omits: ClassVar[tuple[str, ...]] = (
        *("non_finite_at", "num_words", "num_bytes", "bits_per_byte", "attention_delta", "timed_seconds"),
        *KLD_KEYS,
    )

    protocol: ProtocolFacts | None = None
    perplexity: float | None = None
    perplexity_error: float | None = None
    perplexity_interval: Interval = None
    nll: float | None = None
    num_windows: int | None = None
    num_tokens: int | None = None
    non_finite: int | None = None
    non_finite_at: NonFinite | None = None
    num_words: int | None = None
    num_bytes: int | None = None
    bits_per_byte: float | None = None
    kld: dict[str, float] | None = None
    kld_error: float | None = None
    kld_interval: Interval = None
    kld_by_position: tuple[KLDBin, ...] | None = None
    kld_by_confidence: tuple[KLDBin, ...] | None = None
    same_top: float | None = None
    mean_delta_p: float | None = None
    delta_p: dict[str, float] | None = None
    non_finite_kld: int | None = None
    kld_reference: KLDReference | None = None
    llama_perplexity: dict[str, dict[str, float | None]] | None = None
    blocks: Blocks | None = None
    attention_delta: AttentionDelta | None = None
    timed_seconds: float | None = None

    @property
    def mean_kld(self) -> float | None:
        return self.kld["mean"] if self.kld else None


@dataclass(frozen=True, slots=True)
class TaskResult(JsonRow):
    """A task, or a group of tasks.

    correct          one digit per item that is right or wrong
    values, weights  of the items of any other metric
    """

    json_omits: ClassVar[tuple[str, ...]] = ("correct", "values", "weights")

    metric: str | None = None
    value: float | None = None
    error: float | None = None
    interval: Interval = None
    num_items: int | None = None
    items_sha256: str | None = None
    correct: str | None = None
    values: list[float | None] | None = None
    weights: list[float | None] | None = None
    higher_is_better: bool | None = None
    metrics: dict[str, float | None] | None = None
    protocol: dict[str, str | int | float | dict[str, str] | None] | None = None
    protocol_hash: str | None = None


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

    reference    the model that the divergence is from
    protocols    name -> quality, if several protocols were asked for; `quality` is the first
    ratio        phase -> how many times as fast as the first of several models that took turns
    launches     of a gate: samples of fresh processes
    peaks_seconds  of measuring the machine's peaks, under the key `machine_peaks_seconds`
    seconds      of the whole
    """

    json_omits: ClassVar[tuple[str, ...]] = (
        "reference",
        "protocols",
        "tasks",
        "ratio",
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
    reference: str | None = None
    quality: Quality | None = None
    protocols: dict[str, Quality] | None = None
    tasks: dict[str, TaskResult] | None = None
    ratio: dict[str, dict[str, float | None]] | None = None
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
