"""The rows of `qbench search`: a searched mix of formats next to the fixed recipes of the same size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from qbench.measure.quality_figures import Blocks
from qbench.measure.records.kept_kinds import ModelRow
from qbench.statistics.estimate import ALPHA, Estimate
from quant.json_data import JsonRow
from quant.kv_names import FLOAT32

PLAIN_MIX = "-plain"  # after the name of a mix: that of the mix without error feedback, in an ablation


@dataclass(frozen=True, slots=True)
class SearchCase(ModelRow):
    """A model and the target of its search.

    protocol_hash        of the held-out text
    container            layout of a directory; None: a GGUF file
    context, batch, kv   of a KV cache that counts in the target: tokens, sequences, formats to choose from
    policies             of that cache, to choose from; None: full alone
    """

    json_omits: ClassVar[tuple[str, ...]] = ("container", "context", "batch", "kv", "policies")

    target: str = ""
    calibration_sha256: str | None = None
    protocol_hash: str | None = None
    windows: int | None = None
    threads: int | None = None
    context: int | None = None
    batch: int | None = None
    kv: str | None = None
    policies: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class SearchedFile(JsonRow):
    """One candidate on the held-out text.

    name        of its recipe
    predicted   KLD, nats
    kld         mean KLD with its interval, nats
    ratio       KLD of the mix over that of this candidate, paired; its p value is corrected for the number of
                candidates; None for the mix
    blocks      sums per window of text
    kv_format, kv_bytes  of a KV cache that counts in the target
    policy      of that cache; None: full
    """

    json_omits: ClassVar[tuple[str, ...]] = ("blocks", "kv_format", "kv_bytes", "policy")

    name: str
    size_bytes: int
    predicted: float
    kld: Estimate
    ratio: Estimate | None = None
    blocks: Blocks | None = None
    kv_format: str | None = None
    kv_bytes: int | None = None
    policy: str | None = None

    @property
    def label(self) -> str:
        """The name with the KV format, which that of a fixed recipe has already, and with the policy."""
        has_format = self.kv_format in (None, FLOAT32) or self.name.endswith(f"+{self.kv_format}")
        name = self.name if has_format else f"{self.name}+{self.kv_format}"
        return name if self.policy is None else f"{name} {self.policy}"

    @property
    def is_beaten(self) -> bool:
        """Whether the mix has the lower KLD, beyond the noise of the text."""
        if self.ratio is None or self.ratio.p_value is None:
            return False
        return self.ratio.value < 1 and self.ratio.p_value < ALPHA


@dataclass(frozen=True, slots=True)
class SearchCost(JsonRow):
    """Time of a search.

    seconds       of the whole command
    cpu_seconds   phase -> processor time of all threads
    gptq_seconds  processor time of one GPTQ run of the same model, that of a candidate
    """

    seconds: float
    cpu_seconds: Mapping[str, float]
    gptq_seconds: float | None = None

    @property
    def ratio(self) -> float | None:
        """Processor time of the search over that of one GPTQ run."""
        return sum(self.cpu_seconds.values()) / self.gptq_seconds if self.gptq_seconds else None


@dataclass(frozen=True, slots=True)
class SearchSpeed(JsonRow):
    """Tokens per second that one sequence decodes at, of the file that was written."""

    predicted_tok_s: float
    tok_s: float


@dataclass(frozen=True, slots=True)
class SearchMetrics(JsonRow):
    """The mix and its rivals.

    mix          place of the mix, such as a tensor of the GGUF file -> format and method, as `q4_k gptq`
    chosen       name of the recipe that was written
    reason       why it was
    num_weights  of the model
    cost         None for an ablation, which makes more files than a search
    speed        None unless the target has one
    """

    chosen: str = ""
    reason: str = ""
    num_weights: int = 0
    mix: Mapping[str, str] | None = None
    candidates: tuple[SearchedFile, ...] = ()
    cost: SearchCost | None = None
    speed: SearchSpeed | None = None
    busy_before: float | None = None
