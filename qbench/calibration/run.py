"""From a job and the options of its calibration to a quantized model."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.calibration.arithmetic import DECODER_IMPL, choose_arithmetic
from qbench.calibration.options import CalibrationOptions
from qbench.calibration.windows import calibration_tokens
from qbench.measure.host.commit import QUANTIZING, code_hash
from qbench.progress import Progress
from qbench.runtime.streamed import StreamedDecoder
from quant.artifacts.file_bytes import sha256_file
from quant.artifacts.imatrix import read_imatrix, write_imatrix
from quant.calibration.from_imatrix import ImatrixStatistics
from quant.calibration.live import LiveStatistics
from quant.calibration.saved import SavedStatistics
from quant.calibration.stats_file import EVERYTHING, StatsFile, check_place, has_part, read_part, write_stats
from quant.calibration.streaming import Statistics, quantize_layers
from quant.calibration.tokens import CalibrationTokens
from quant.errors import InputError
from quant.job import QuantizationJob
from quant.kv import calibrate_kv, get_kv_format
from quant.models import ModelConfig
from quant.quantize import QuantizedSource
from quant.source import Source
from quant.stage import open_stage, steps_done
from quant.stats import LayerStats


@contextmanager
def quantized_model(
    job: QuantizationJob,
    options: CalibrationOptions,
    folder: Path,
    *,
    threads: int = 1,
    resume: bool = False,
    progress: Progress | None = None,
) -> Iterator[QuantizedSource]:
    """Yields the model as the job makes it, calibrated if its methods need that.

    folder   holds the layers until the block ends; a killed run leaves it for `resume`. Not made for a job without
             calibration, which quantizes as it is read
    threads  for calibration; any number gives the same bytes
    raises   InputError for text, statistics or weights that cannot be used
    """
    if not job.needs_calibration:
        _refuse_files(job, options)
        yield QuantizedSource(job)
        return
    basis = choose_basis(job, options)
    if basis.tokens is None and job.recipe.kv is not None:
        calibrate_kv(get_kv_format(job.recipe.kv), ())  # raises if it needs ranges, which no importance matrix has
    if resume and options.keeps_statistics:
        _check_parts(folder, ModelConfig.of(job.source).num_layers)
    with open_stage(folder, {**basis.about, "code": code_hash(QUANTIZING)}, resume=resume) as stage:
        stage.notes["calibration"] = basis.about["calibration"]
        statistics = basis.statistics(job.source, options, folder, threads)
        quantized = quantize_layers(job, statistics, stage, progress)
        if isinstance(statistics, SavedStatistics) and options.stats is not None:
            write_stats(options.stats, folder, stage.num_done, basis.stats_about)
        if options.export_imatrix is not None:
            layers = [_kept_stats(statistics, folder, index) for index in range(stage.num_done)]
            export_imatrix(options.export_imatrix, layers, job.source, basis.about["calibration"]["text"])
        yield quantized


@dataclass(frozen=True, slots=True)
class Basis:
    """What a model is calibrated by: windows of text, or a file of statistics.

    about    {model, recipe, calibration}: everything but the code that decides the bytes
    tokens   None for an importance matrix
    """

    about: dict[str, Any]
    tokens: CalibrationTokens | None

    @property
    def stats_about(self) -> dict[str, Any]:
        """What of it decides the statistics: a recipe changes those that are taken behind quantized layers."""
        on_original = self.about["calibration"].get("on") == "original"
        return {key: value for key, value in self.about.items() if key != "recipe" or not on_original}

    def statistics(self, source: Source, options: CalibrationOptions, folder: Path, threads: int) -> Statistics:
        if self.tokens is None:
            return ImatrixStatistics(read_imatrix(options.imatrix, source))
        if options.stats is not None and options.stats.exists():
            file = StatsFile(options.stats)
            file.check(self.stats_about)
            return file
        config = ModelConfig.of(source)
        arithmetic = self.about["calibration"]["arithmetic"]
        live = LiveStatistics(
            StreamedDecoder(config, impl=DECODER_IMPL[arithmetic]),
            config,
            self.tokens,
            folder,
            on_quantized=options.on != "original",
            in_steps=options.on == "steps",
            min_expert_tokens=options.min_expert_tokens,
            gram=arithmetic,
            num_threads=threads,
        )
        if not options.keeps_statistics:
            return live
        return SavedStatistics(live, folder, frozenset() if options.stats is None else EVERYTHING)


def export_imatrix(path: Path, layers: Iterable[LayerStats], source: Source, text: str) -> None:
    """raises InputError where the file cannot be written, or an expert was not reached"""
    inputs = {name: inputs for layer in layers for name, inputs in layer.inputs.items()}
    importance = {name: each.importance for name, each in inputs.items()}
    write_imatrix(path, importance, source, {name: each.num_tokens for name, each in inputs.items()}, (text,))


def _kept_stats(statistics: Statistics, folder: Path, index: int) -> LayerStats:
    """A layer's statistics once more, from where they were kept; of a head that was not calibrated, none."""
    if isinstance(statistics, StatsFile):
        there = index < statistics.num_parts
        return statistics.layer(index, {}, lambda names: frozenset()) if there else LayerStats({})
    return read_part(folder, index) if has_part(folder, index) else LayerStats({})


def _check_parts(folder: Path, num_layers: int) -> None:
    """raises InputError where a run is to continue that kept no statistics of the layers that are done"""
    if not all(has_part(folder, index) for index in range(min(steps_done(folder), num_layers))):
        raise InputError(
            f"{folder} was begun without --stats or --export-imatrix, and what its layers read is gone; continue "
            "without them, or start again without --resume"
        )


def _refuse_files(job: QuantizationJob, options: CalibrationOptions) -> None:
    """raises InputError for a file that a job without calibration would not look at"""
    recipe = job.recipe
    if options.imatrix is not None:
        raise InputError(f"recipe {recipe.name} reads no importance matrix; take one that does, such as imatrix-q4_k_m")
    if options.stats is not None:
        raise InputError(f"recipe {recipe.name} does not calibrate, so it reads and writes no statistics; drop --stats")
    if options.export_imatrix is not None:
        raise InputError(f"recipe {recipe.name} does not calibrate, so there is no importance matrix to export")


def choose_basis(job: QuantizationJob, options: CalibrationOptions) -> Basis:
    """raises InputError for options that exclude each other, and for text or files that cannot be read"""
    if options.stats is not None:
        check_place(options.stats)
    if options.imatrix is None:
        tokens = calibration_tokens(job.source, options)
        described = tokens.describe() | {
            "on": options.on,
            "min_expert_tokens": options.min_expert_tokens,
            "arithmetic": choose_arithmetic(options),
        }
    elif options.stats is not None:
        raise InputError("--imatrix and --stats both hold statistics; give one of them")
    elif options.export_imatrix is not None:
        raise InputError("--export-imatrix writes what a calibration found; with --imatrix there is none")
    else:
        tokens = None
        described: Mapping[str, Any] = {"imatrix": str(options.imatrix), "sha256": sha256_file(options.imatrix)}
    about = {"model": job.source.fingerprint(), "recipe": job.describe(), "calibration": dict(described)}
    return Basis(about, tokens)
