"""What quantizing a model will take, from a probe of one of its layers: memory, disk and time."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qbench.calibration.arithmetic import choose_arithmetic
from qbench.calibration.options import CalibrationOptions
from qbench.calibration.run import quantized_model
from qbench.calibration.windows import window_length
from qbench.measure.host.memory import peak_rss_bytes, reset_peak_rss
from quant.artifacts import write_artifact
from quant.calibration.hidden import ITEM_BYTES
from quant.formats import get_format
from quant.models import ModelConfig, split_name
from quant.qtensor import QTensor
from quant.recipes import Recipe
from quant.source import Source, SourceView


class OneLayer(SourceView):
    """`source` with its middle decoder layer as the only one: not a model to run, but one to measure."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        model = ModelConfig.of(source)
        middle = model.num_layers // 2
        self.config = {**source.config, "num_hidden_layers": 1}
        if model.layer_kind(middle) == "moe":
            self.config["first_k_dense_replace"] = 0  # the only layer is one with experts, too
        self._original = {_as_layer_0(name): name for name in source.tensors if split_name(name)[1] in (None, middle)}
        self.tensors = {name: source.tensors[own] for name, own in self._original.items()}

    def read(self, name: str) -> QTensor:
        return super().read(self._original[name])

    def fingerprint(self) -> str:
        return "probe"


@dataclass(frozen=True, slots=True)
class Probe:
    """Seconds of one layer and of all the rest, and the most memory that this process held."""

    layer_s: float
    rest_s: float
    peak_rss_bytes: int


def forecast(source: Source, recipe: Recipe, options: CalibrationOptions, threads: int) -> dict[str, Any]:
    """{seconds, peak_rss_bytes, disk_bytes} of quantizing the source by a calibrated recipe, without a file of stats.

    The middle layer is calibrated and quantized for once, on all windows, and written as a model of one layer.
    raises   as `quantized_model`
    """
    config = ModelConfig.of(source)
    start = time.perf_counter()
    source.fingerprint()  # read as a whole for its hash, as the run will
    hashed_s = time.perf_counter() - start
    probe = measure_layer(source, recipe, replace(options, stats=None), threads)
    return {
        "seconds": total_seconds(probe, config.num_layers, hashed_s),
        "peak_rss_bytes": probe.peak_rss_bytes,
        "disk_bytes": disk_bytes(source, recipe, options, config),
    }


def total_seconds(probe: Probe, num_layers: int, hashed_s: float) -> float:
    return num_layers * probe.layer_s + probe.rest_s + hashed_s


def disk_bytes(source: Source, recipe: Recipe, options: CalibrationOptions, config: ModelConfig) -> int:
    """The most that lies beside each other: staged layers with what a layer reads, writes and keeps between its steps,
    or with the artifact.
    """
    plan = recipe.plan(source)
    sizes = {name: get_format(plan[name].format).size_bytes(info.shape) for name, info in source.tensors.items()}
    staged = sum(size for name, size in sizes.items() if split_name(name)[1] is not None)
    row_bytes = 2 * ITEM_BYTES * config.hidden_size
    methods = [row.method or recipe.make_method() for row in plan.values()]
    if options.on == "steps" and all(method.stands_alone for method in methods) and not (config.moe or config.mla):
        read_bytes = 2 if choose_arithmetic(options) == "bf16" else ITEM_BYTES
        row_bytes += ITEM_BYTES * config.hidden_size + read_bytes * (
            config.num_heads * config.head_dim + config.ffn_size
        )
    rows = options.samples * window_length(source, options)
    return staged + max(rows * row_bytes, sum(sizes.values()))


def measure_layer(source: Source, recipe: Recipe, options: CalibrationOptions, threads: int) -> Probe:
    clock = _Clock()
    reset_peak_rss()
    with TemporaryDirectory(prefix="qbench-") as folder:
        one = OneLayer(source)
        with quantized_model(
            one, recipe, options, Path(folder) / "stage", threads=threads, progress=clock.step
        ) as quantized:
            clock.step(1, 1, "write")
            out = Path(folder) / ("m.gguf" if recipe.container == "gguf" else "m")
            write_artifact(one, out, recipe=recipe, stage=quantized.stage, progress=clock.tensor)
    return Probe(clock.layer_s, clock.rest_s(), peak_rss_bytes())


class _Clock:
    """Tells the time of the layer from that of everything else."""

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
