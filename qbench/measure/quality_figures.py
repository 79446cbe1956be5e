"""`Quality`: the figures of a model's quality under one protocol, or on a task of lm-eval."""

from dataclasses import dataclass
from typing import ClassVar

from quant.json_data import JsonRow

Interval = list[float] | None  # 95 %


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
