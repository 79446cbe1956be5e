"""Forecast of quantizing a model, from a probe of one of its layers: memory, disk and time."""

import time
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from qbench.calibration.run import Run, choose_arithmetic, quantized_model
from qbench.calibration.windows import window_seq_len
from qbench.measure.host.memory import peak_rss_bytes, reset_peak_rss
from qbench.run.work import CalibrationWork
from quant.artifacts import write_artifact
from quant.artifacts.output import artifact_name
from quant.calibration.hidden import ITEM_BYTES
from quant.formats import get_format
from quant.job import Output, QuantizationJob
from quant.json_data import JsonData
from quant.models import ModelConfig, split_name
from quant.qtensor import QTensor
from quant.source import Source, SourceView

HASHED_BYTES = 8 << 20  # some milliseconds


class OneLayer(SourceView):
    """`source` with its middle decoder layer as the only one: not a model to run, but one to measure.

    original   name of a tensor -> its name in `source`
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        model = ModelConfig.of(source)
        middle = model.num_layers // 2
        self.config = {**source.config, model.architecture.own_key("num_hidden_layers"): 1}
        if model.layer_kind(middle) == "moe":
            self.config["first_k_dense_replace"] = 0  # the only layer is one with experts, too
        self.original = {_as_layer_0(name): name for name in source.tensors if split_name(name)[1] in (None, middle)}
        self.tensors = {name: source.tensors[own] for name, own in self.original.items()}

    def read(self, name: str) -> QTensor:
        return super().read(self.original[name])

    def fingerprint(self) -> str:
        return "probe"


@dataclass(frozen=True, slots=True)
class Probe:
    """Seconds of one layer and of all the rest, and the most memory that this process held."""

    layer_s: float
    rest_s: float
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True)
class Forecast(JsonData):
    """Costs of a calibrated job. disk_bytes: the most while it runs; artifact_bytes: tensors that stay"""

    seconds: float
    peak_rss_bytes: int
    disk_bytes: int
    artifact_bytes: int


def forecast(job: QuantizationJob, options: CalibrationWork, threads: int) -> Forecast:
    """The cost of a calibrated job, without a file of statistics.

    The middle layer is calibrated and quantized once, on all windows, and written as a model of one layer.
    raises   as `quantized_model`
    """
    config = ModelConfig.of(job.source)
    start = time.perf_counter()
    job.source.fingerprint()  # read as a whole for its hash, as the run will
    hashed_s = time.perf_counter() - start
    probe = measure_layer(job, replace(options, stats=None), threads)
    return Forecast(
        seconds=total_seconds(probe, config.num_layers, hashed_s),
        peak_rss_bytes=probe.peak_rss_bytes,
        disk_bytes=disk_bytes(job, options, config),
        artifact_bytes=sum(tensor_sizes(job).values()),
    )


def plain_seconds(job: QuantizationJob, threads: int) -> float:
    """Seconds of a job without calibration: those of its middle layer for each layer, and of hashing the source."""
    num_bytes = sum(info.size_bytes for info in job.source.tensors.values())
    probe = measure_layer(job, CalibrationWork(), threads)
    return total_seconds(probe, ModelConfig.of(job.source).num_layers, num_bytes * hash_seconds_per_byte())


def hash_seconds_per_byte() -> float:
    start = time.perf_counter()
    sha256(bytes(HASHED_BYTES))
    return (time.perf_counter() - start) / HASHED_BYTES


def total_seconds(probe: Probe, num_layers: int, hashed_s: float) -> float:
    return num_layers * probe.layer_s + probe.rest_s + hashed_s


def tensor_sizes(job: QuantizationJob) -> dict[str, int]:
    """Bytes of each tensor of the artifact."""
    shapes = {name: info.shape for name, info in job.source.tensors.items()}
    return {name: get_format(job.choices[name].format).size_bytes(shape) for name, shape in shapes.items()}


def disk_bytes(job: QuantizationJob, options: CalibrationWork, config: ModelConfig) -> int:
    """The most bytes at one time: all staged layers, with the hidden states of one layer or with the artifact."""
    source, choices = job.source, job.choices
    sizes = tensor_sizes(job)
    staged = sum(size for name, size in sizes.items() if split_name(name)[1] is not None)
    row_bytes = 2 * ITEM_BYTES * config.hidden_size
    alone = all(job.method_of(name).stands_alone for name in choices)
    if options.on == "steps" and alone and not (config.moe or config.mla):
        read_bytes = 2 if choose_arithmetic(options) == "bf16" else ITEM_BYTES
        row_bytes += ITEM_BYTES * config.hidden_size + read_bytes * (
            config.num_heads * config.head_dim + config.ffn_size
        )
    rows = options.samples * window_seq_len(source, options)
    return staged + max(rows * row_bytes, sum(sizes.values()))


def measure_layer(job: QuantizationJob, options: CalibrationWork, threads: int) -> Probe:
    """Quantizes and writes the model's middle layer as the job does."""
    clock = _Clock()
    reset_peak_rss()
    with TemporaryDirectory(prefix="qbench-") as folder:
        one = one_layer_job(job, Path(folder))
        with quantized_model(one, options, Path(folder) / "stage", Run(threads, progress=clock.step)) as quantized:
            clock.step(1, 1, "write")
            write_artifact(quantized, clock.tensor)
    return Probe(clock.layer_s, clock.rest_s(), peak_rss_bytes())


def one_layer_job(job: QuantizationJob, folder: Path) -> QuantizationJob:
    """The part of the job that is the model's middle layer, for an artifact in `folder`."""
    one = OneLayer(job.source)
    choices = {name: job.choices[original] for name, original in one.original.items()}
    return QuantizationJob(one, job.recipe, choices, Output(folder / artifact_name("m", job.recipe), job.container))


class _Clock:
    """Separates the time of the layer from that of everything else."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._of = "rest"
        self.layer_s = 0.0

    def step(self, done: int, total: int, what: str) -> None:
        """Before a step of the calibrated run; the first is the layer's."""
        now = self._lap()
        self._of = "layer" if (done, what) == (0, f"layer 1 of {total - 1}") else "rest"
        self._last = now

    def tensor(self, done: int, total: int, name: str) -> None:
        """After a tensor was written."""
        self._of = "rest" if split_name(name)[1] is None else "layer"
        self._last = self._lap()

    def rest_s(self) -> float:
        return time.perf_counter() - self._start - self.layer_s

    def _lap(self) -> float:
        now = time.perf_counter()
        if self._of == "layer":
            self.layer_s += now - self._last
        return now


def _as_layer_0(name: str) -> str:
    layer = split_name(name)[1]
    return name if layer is None else name.replace(f".layers.{layer}.", ".layers.0.", 1)
