"""The jobs that a sweep gives to a worker, and the answers: one class per job and per result."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from qbench.measure.metrics import Metrics
from qbench.measure.speed_figures import MachinePeaks
from qbench.run.options import RunOptions
from qbench.run.work import CalibrationWork, QualityWork, SpeedWork, TasksWork
from quant.json_data import JsonData

R = TypeVar("R", bound=JsonData)


class Job(JsonData, Generic[R]):
    """name: of the job, as the worker knows it; result: the class of its answer"""

    __slots__ = ()
    name: ClassVar[str]
    result: ClassVar[type[JsonData]]

    def answer(self, document: Mapping[str, Any]) -> R:
        return self.result.from_json(document)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class WritingJob(Job[R]):
    """A job that writes into a folder; fingerprint: of the model's files"""

    model: str
    fingerprint: str | None
    threads: int | None
    folder: str


@dataclass(frozen=True, slots=True)
class KeptReferences(JsonData):
    """Names of the protocols whose logits are kept; under the others each case runs the reference next to its model."""

    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceJob(WritingJob[KeptReferences]):
    """Run the unquantized model over the text and keep its logits in the folder."""

    name: ClassVar[str] = "reference"
    result: ClassVar[type[JsonData]] = KeptReferences

    quality: QualityWork


@dataclass(frozen=True, slots=True)
class MadeArtifact(JsonData):
    """file: its name in the folder; code: that wrote it; warnings: lines of the quantization job"""

    json_omits: ClassVar[tuple[str, ...]] = ("code", "quantize_seconds", "quantize_peak_rss_bytes", "warnings")

    file: str
    code: str | None = None
    warnings: tuple[str, ...] = ()
    quantize_seconds: float | None = None
    quantize_peak_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeJob(WritingJob[MadeArtifact]):
    """Write the artifact of one recipe into the folder."""

    name: ClassVar[str] = "quantize"
    result: ClassVar[type[JsonData]] = MadeArtifact

    recipe: str
    calibration: CalibrationWork | None


@dataclass(frozen=True, slots=True)
class Work(JsonData):
    """Measurements of an artifact; a part that is None is not made."""

    quality: QualityWork | None = None
    speed: SpeedWork | None = None
    tasks: TasksWork | None = None


@dataclass(frozen=True, slots=True)
class MeasureJob(Job[Metrics]):
    """Measure the artifact.

    model    the unquantized one, which is the reference of quality
    logits   folder of the reference's logits
    peaks    of the machine, from an earlier row
    """

    name: ClassVar[str] = "measure"
    result: ClassVar[type[JsonData]] = Metrics

    artifact: str
    model: str
    options: RunOptions
    logits: str
    work: Work
    peaks: MachinePeaks | None = None


@dataclass(frozen=True, slots=True)
class ModelProbe(JsonData):
    """Seconds of loading an artifact, of a prompt's token, of that with all logits judged, and of a step of decoding.

    All from one layer between embedding and head: a token of a prompt reads the layers alone, all else every weight.

    quantize_s   recipe -> seconds of quantizing the whole; those that there was time for
    """

    load_s: float
    token_s: float
    judged_token_s: float
    step_s: float
    quantize_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class ProbeJob(Job[ModelProbe]):
    """recipes: whose quantizing is tried on one layer, until `budget_s` seconds have passed"""

    name: ClassVar[str] = "probe"
    result: ClassVar[type[JsonData]] = ModelProbe

    model: str
    recipes: tuple[str, ...]
    calibration: CalibrationWork | None
    threads: int
    budget_s: float
