"""The rows that other commands than `qbench sweep` keep: kernels, llama.cpp next to qbench, engine, latents, plans."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from qbench.measure.metrics import Facts
from qbench.measure.speed_figures import SpeedFigures, Spread
from quant.json_data import JsonRow

# Features of llama.cpp's build that decide its speed; a build without them is named by AVX2.
WIDE = ("AVX512", "AVX_VNNI", "AMX")


@dataclass(frozen=True, slots=True)
class ModelRow(JsonRow):
    """The kind of a row, and the model that it measured."""

    kind: str
    model: str
    recipe: str | None = None
    kv_format: str | None = None


@dataclass(frozen=True, slots=True)
class SizedRow(ModelRow):
    """context: tokens of each sequence; batch: sequences"""

    context: int | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class TimedRow(ModelRow):
    """A model that was timed. clock: "wall" or "cpu"; forced: the instruction set that QBENCH_ISA forced"""

    json_omits: ClassVar[tuple[str, ...]] = ("forced",)

    threads: int | None = None
    clock: str | None = None
    forced: str | None = None


@dataclass(frozen=True, slots=True)
class KernelCase(JsonRow):
    """A kernel and its work. tokens: None for work without tokens"""

    json_omits: ClassVar[tuple[str, ...]] = ("forced",)

    kind: str
    op: str = ""
    shape: str = ""
    tokens: int | None = None
    threads: int | None = None
    clock: str | None = None
    forced: str | None = None


@dataclass(frozen=True, slots=True)
class Contender(JsonRow):
    """One implementation of the work: its times, or the reason for their absence.

    how        the code that ran
    share      of the roofline
    ratio      how many times as fast ours is
    absent     why it was not timed
    wrong      how far its result is off
    """

    json_omits: ClassVar[tuple[str, ...]] = (
        "how", "ms", "gb_s", "tera_ops", "share", "spread_ms", "samples_ms", "ratio", "absent", "wrong",
    )  # fmt: skip

    how: str | None = None
    ms: float | None = None
    gb_s: float | None = None
    tera_ops: float | None = None
    share: float | None = None
    spread_ms: Spread | None = None
    samples_ms: list[list[float]] | None = None
    ratio: Spread | None = None
    absent: str | None = None
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class KernelMetrics(JsonRow):
    """The contenders' times, and the bound that they are compared with.

    arithmetic      the operands, as in `qbench.speed.units`
    unit            the strongest that could do the job, of which peak_ops_per_s is; absent from older records, whose
                    arithmetic and peak are those that ran
    """

    json_omits: ClassVar[tuple[str, ...]] = ("impls", "protocol", "affinity", "numa_nodes", "unit")

    calls: int | None = None
    moved_bytes: int | None = None
    operations: int | None = None
    arithmetic: str | None = None
    least_ms: float | None = None
    bound_by: str | None = None
    impls: dict[str, int] | None = None
    contenders: dict[str, Contender] | None = None
    protocol: dict[str, str | int | float] | None = None
    isa: str | None = None
    machine: str | None = None
    affinity: str | None = None
    numa_nodes: list[int] | None = None
    bandwidth_bytes_per_s: list[float] | None = None
    peak_ops_per_s: float | list[float] | None = None
    unit: str | None = None
    busy_before: float | None = None
    load_average: list[float] | None = None


@dataclass(frozen=True, slots=True)
class VersusCase(TimedRow):
    """A file that both programs run, and the work."""

    json_omits: ClassVar[tuple[str, ...]] = ("recipe", "forced")

    peer: str | None = None
    pp: int = 0
    tg: int = 0
    depth: int = 0


@dataclass(frozen=True, slots=True)
class PeerFacts(JsonRow):
    """The other program: its version, its own list of features of its build, and its type of the KV cache"""

    version: str
    system: str
    kv_format: str

    @property
    def build(self) -> str:
        """ "llama-cpp-python 0.3.36, built with AVX512_VNNI, AMX_INT8" """
        names = [feature.split(" = ")[0].rpartition(": ")[2].strip() for feature in self.system.split("|")]
        wide = [name for name in names if name.startswith(WIDE)] or [name for name in names if name == "AVX2"]
        return f"llama-cpp-python {self.version}" + (f", built with {', '.join(wide)}" if wide else "")


@dataclass(frozen=True, slots=True)
class VersusRatio(Spread):
    """How many times as fast ours is, over the rounds. interval: 95 %; None for too few rounds"""

    interval: list[float] | None = None


@dataclass(frozen=True, slots=True)
class VersusRoofline(JsonRow):
    """Phase -> share of the roofline, of either program. units: as in `Roofline`"""

    json_omits: ClassVar[tuple[str, ...]] = ("units",)

    ours: dict[str, float | None] | None = None
    theirs: dict[str, float | None] | None = None
    bandwidth_bytes_per_s: list[float] | None = None
    peak_ops_per_s: dict[str, float] | None = None
    units: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class VersusMetrics(JsonRow):
    """Both programs' speeds and their ratio, by phase.

    ran      phase -> the code that runs so many tokens, and how many linears
    kv_bits  of one number of our KV cache, its share of the scales included
    peer     under the key of its name
    """

    json_keys: ClassVar[Mapping[str, str]] = {"peer": "llama.cpp"}
    json_omits: ClassVar[tuple[str, ...]] = ("ran",)
    json_flat: ClassVar[tuple[str, ...]] = ("facts",)

    facts: Facts | None = None
    batch: int | None = None
    ran: dict[str, dict[str, int]] | None = None
    kv_bits: float | None = None
    peer: PeerFacts | None = None
    ours: SpeedFigures | None = None
    theirs: SpeedFigures | None = None
    ratio: dict[str, VersusRatio | None] | None = None
    roofline: VersusRoofline | None = None
    load_average: list[float] | None = None
    seconds: float | None = None
    busy_before: float | None = None


@dataclass(frozen=True, slots=True)
class ThroughputCase(TimedRow):
    """A model and a workload of many requests. batch: sequences at once; chunk: tokens of a forward pass"""

    json_omits: ClassVar[tuple[str, ...]] = ("policy", "prefill_chunk", "prefill", "forced")

    policy: str | None = None
    prefill_chunk: int | None = None
    prefill: str | None = None
    compute: str | None = None
    workload: str | None = None
    seed: int | None = None
    batch: int | None = None
    chunk: int | None = None


@dataclass(frozen=True, slots=True)
class ServingFigures(JsonRow):
    """One way to run the workload.

    computed   tokens that went through the model
    ratio      how many times as fast the engine is
    same_text  share of the requests that end in the engine's text
    """

    tok_s: float
    computed: int
    ttft_ms: float
    ratio: Spread
    same_text: float
    samples: list[float]


@dataclass(frozen=True, slots=True)
class ThroughputMetrics(JsonRow):
    """The engine and other ways to run the same requests."""

    json_flat: ClassVar[tuple[str, ...]] = ("facts",)

    facts: Facts | None = None
    new_tokens: int | None = None
    busy_before: float | None = None
    contenders: dict[str, ServingFigures] | None = None


@dataclass(frozen=True, slots=True)
class LatentCase(TimedRow):
    """A mode of latent attention at one size. context: tokens held; tokens: new ones"""

    json_omits: ClassVar[tuple[str, ...]] = ("recipe", "forced")

    device: str | None = None
    context: int = 0
    batch: int = 1
    tokens: int = 1
    mode: str = ""


@dataclass(frozen=True, slots=True)
class LatentMetrics(JsonRow):
    """Cost of one mode of latent attention. picked: whether the runtime takes it here"""

    kv_bytes_per_token: float = 0.0
    flop_per_token: float = 0.0
    flop: dict[str, float] | None = None
    ms: float = 0.0
    samples_ms: list[float] | None = None
    peak_bytes: int = 0
    picked: bool = False
    busy_before: float | None = None


@dataclass(frozen=True, slots=True)
class PlanCase(SizedRow):
    """A model and the context whose memory was planned."""

    cache: str | None = None
    policy: str | None = None
    window: int | None = None
    forward_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PlanMetrics(JsonRow):
    """Memory by part, as planned; the rest if it was asked for or measured.

    memory_bytes, fits                  the memory that was asked for
    kv_tokens to largest_contexts       how much would fit into it
    peak_rss_bytes to ratio             of a process that did it: predicted over measured
    """

    json_omits: ClassVar[tuple[str, ...]] = (
        "memory_bytes", "fits", "kv_tokens", "largest_batch", "largest_contexts", "peak_rss_bytes", "runtime_bytes",
        "predicted_peak_bytes", "ratio",
    )  # fmt: skip

    size_bytes: int | None = None
    num_weights: int | None = None
    bits_per_weight: float | None = None
    bits_per_weight_by_part: dict[str, float | None] | None = None
    weights_bytes: int | None = None
    weights_by_format: dict[str, int] | None = None
    kv_bytes_per_token: float | None = None
    resident_bytes: int | None = None
    kv_bytes: int | None = None
    workspace_bytes: int | None = None
    total_bytes: int | None = None
    attention: str | None = None
    kv_forms_bytes_per_token: dict[str, float] | None = None
    windowed_kv_share: float | None = None
    memory_bytes: int | None = None
    fits: bool | None = None
    kv_tokens: int | None = None
    largest_batch: int | None = None
    largest_contexts: list[dict[str, int]] | None = None
    peak_rss_bytes: int | None = None
    runtime_bytes: int | None = None
    predicted_peak_bytes: int | None = None
    ratio: float | None = None
