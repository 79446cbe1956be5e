"""Statistics that outlive a run: a file of all of them, and an importance matrix for llama.cpp."""

from collections.abc import Iterable
from pathlib import Path

from qbench.run.work import CalibrationWork
from quant.artifacts.imatrix import write_imatrix
from quant.calibrated import CalibrationKey, TextCalibration
from quant.calibration.saved import SavedStatistics
from quant.calibration.stats_file import StatsFile, has_part, read_part, write_stats
from quant.calibration.streaming import Statistics
from quant.source import Source
from quant.stage import Stage
from quant.stats import LayerStats


def keep_statistics(
    statistics: Statistics, stage: Stage, options: CalibrationWork, about: CalibrationKey, source: Source
) -> None:
    """Writes the files of statistics that `options` asks for, once all layers are done.

    about    all that decides the statistics: model, calibration, and the recipe if it matters
    raises   InputError if a file cannot be written, or an expert was not reached
    """
    if isinstance(statistics, SavedStatistics) and options.stats is not None:
        write_stats(options.stats, stage.folder, stage.num_done, about)
    if options.export_imatrix is not None and isinstance(about.calibration, TextCalibration):
        layers = [_kept_stats(statistics, stage.folder, index) for index in range(stage.num_done)]
        _export_imatrix(options.export_imatrix, layers, source, about.calibration.text)


def _export_imatrix(path: Path, layers: Iterable[LayerStats], source: Source, text: str) -> None:
    inputs = {name: inputs for layer in layers for name, inputs in layer.inputs.items()}
    importance = {name: each.importance for name, each in inputs.items()}
    write_imatrix(path, importance, source, {name: each.num_tokens for name, each in inputs.items()}, (text,))


def _kept_stats(statistics: Statistics, folder: Path, index: int) -> LayerStats:
    """The statistics of a layer, read from the kept ones; a head that was not calibrated has no statistics."""
    if isinstance(statistics, StatsFile):
        there = index < statistics.num_parts
        return statistics.layer(index, {}, lambda names: frozenset()) if there else LayerStats({})
    return read_part(folder, index) if has_part(folder, index) else LayerStats({})
