"""From a job and the options of its calibration to a quantized model: its arithmetic, its statistics, its run."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from qbench.calibration.learned_rotation import with_learned_rotation
from qbench.calibration.windows import calibration_tokens
from qbench.measure.host.commit import QUANTIZING, code_hash
from qbench.progress import Progress
from qbench.run.work import CalibrationWork
from qbench.runtime.streamed import StreamedDecoder
from quant.artifacts.file_bytes import sha256_file
from quant.artifacts.imatrix import read_imatrix, write_imatrix
from quant.calibrated import CalibrationKey, ImatrixCalibration, TextCalibration
from quant.calibration.live import LiveStatistics
from quant.calibration.ready import ImatrixStatistics
from quant.calibration.saved import SavedStatistics, check_saved
from quant.calibration.stats_file import EVERYTHING, StatsFile, check_place, has_part, read_part, write_stats
from quant.calibration.streaming import Statistics, quantize_layers
from quant.calibration.tokens import CalibrationTokens
from quant.errors import InputError
from quant.extension import import_kernels
from quant.job import QuantizationJob
from quant.kv import calibrate_kv, get_kv_format
from quant.models import ModelConfig
from quant.present import present
from quant.quantize import QuantizedSource
from quant.source import Source
from quant.stage import Stage, open_stage
from quant.stats import LayerStats

# Name in options and manifests, which is that of the Hessians' sum in quant.calibration.gram -> impl of the decoder
DECODER_IMPL = {"fp32": "reference", "bf16": "bf16"}
BF16_ISAS = ("avx512_bf16", "amx")


@dataclass(frozen=True, slots=True)
class Run:
    """How a job runs.

    threads  for calibration; any number gives the same bytes
    resume   continue a run that was killed
    """

    threads: int = 1
    resume: bool = False
    progress: Progress | None = None


ONE_THREAD = Run()


@contextmanager
def quantized_model(
    job: QuantizationJob, options: CalibrationWork, folder: Path, how: Run = ONE_THREAD
) -> Iterator[QuantizedSource]:
    """Yields the model as the job makes it, calibrated if its methods need that.

    folder   holds the layers until the block ends; a killed run leaves it for `resume`. Not made for a job without
             calibration, which quantizes as it is read
    raises   InputError for text, statistics or weights that cannot be used
    """
    _refuse_imatrix(job, options)
    if job.recipe.learned:
        job = with_learned_rotation(job, options, how.progress)
    if job.needs_calibration:
        yield from _calibrated(job, options, folder, how)
    else:
        _refuse_files(job.recipe.name, options)
        yield QuantizedSource(job)


def _calibrated(job: QuantizationJob, options: CalibrationWork, folder: Path, how: Run) -> Iterator[QuantizedSource]:
    # First text, tokenizer and decoder, which qbench has. Then the job goes down into quant and does not come back up.
    basis = choose_basis(job, options)
    statistics = basis.statistics(job, options, folder, how.threads)
    if how.resume and options.keeps_statistics:
        check_saved(folder, ModelConfig.of(job.source).num_layers)
    with open_stage(folder, replace(basis.about, code=code_hash(QUANTIZING)), resume=how.resume) as stage:
        quantized = quantize_layers(job, statistics, stage, how.progress)
        keep_statistics(statistics, stage, options, basis.stats_about, job.source)
        yield quantized


@dataclass(frozen=True, slots=True)
class Basis:
    """The basis of a calibration: windows of text, or an importance matrix.

    about    everything but the code that decides the bytes
    tokens   None for an importance matrix
    """

    about: CalibrationKey
    tokens: CalibrationTokens | None

    @property
    def stats_about(self) -> CalibrationKey:
        """The part of `about` that decides the statistics: behind quantized layers, the recipe changes them."""
        by = self.about.calibration
        on_original = isinstance(by, TextCalibration) and by.on == "original"
        return replace(self.about, recipe=None) if on_original else self.about

    def statistics(self, job: QuantizationJob, options: CalibrationWork, folder: Path, threads: int) -> Statistics:
        """From a run of the model, a file of an earlier run, or the importance matrix.

        raises   InputError for a file of other statistics, a KV format that needs more than an importance matrix, and
                 tokens that the model cannot read
        """
        if self.tokens is not None and not options.reads_statistics:
            live = self._live(ModelConfig.of(job.source), self.tokens, options, folder, threads)
            if not options.keeps_statistics:
                return live
            return SavedStatistics(live, folder, frozenset() if options.stats is None else EVERYTHING)
        if self.tokens is None:
            if job.recipe.kv is not None:
                calibrate_kv(get_kv_format(job.recipe.kv), ())  # raises if it needs ranges of keys and values
            return ImatrixStatistics(read_imatrix(present(options.imatrix), job.source))
        file = StatsFile(present(options.stats))
        file.check(self.stats_about)
        return file

    def _live(
        self, config: ModelConfig, tokens: CalibrationTokens, options: CalibrationWork, folder: Path, threads: int
    ) -> LiveStatistics:
        by = self.about.calibration
        assert isinstance(by, TextCalibration)
        arithmetic = by.arithmetic
        decoder = StreamedDecoder(config, impl=DECODER_IMPL[arithmetic])
        return LiveStatistics(
            decoder,
            tokens,
            folder,
            on_quantized=options.on != "original",
            in_steps=options.on == "steps",
            min_expert_tokens=options.min_expert_tokens,
            gram=arithmetic,
            num_threads=threads,
        )


def choose_basis(job: QuantizationJob, options: CalibrationWork) -> Basis:
    """raises InputError for options that exclude each other, and for text or files that cannot be read"""
    if options.stats is not None:
        check_place(options.stats)
    if options.imatrix is None:
        tokens = calibration_tokens(job.source, options)
        described = tokens.describe(
            on=options.on, min_expert_tokens=options.min_expert_tokens, arithmetic=choose_arithmetic(options)
        )
    elif options.stats is not None:
        raise InputError("--imatrix and --stats both hold statistics; give one of them")
    elif options.export_imatrix is not None:
        raise InputError("--export-imatrix writes what a calibration found; with --imatrix there is none")
    else:
        tokens = None
        described = ImatrixCalibration(imatrix=str(options.imatrix), sha256=sha256_file(options.imatrix))
    key = CalibrationKey(model=job.source.fingerprint(), recipe=job.description, calibration=described)
    return Basis(key, tokens)


def _refuse_imatrix(job: QuantizationJob, options: CalibrationWork) -> None:
    """raises InputError for an importance matrix of inputs in another basis"""
    if job.recipe.rotated and options.imatrix is not None:
        raise InputError(
            f"recipe {job.recipe.name} rotates the inputs that {options.imatrix} is of; calibrate it on text"
        )


def _refuse_files(recipe: str, options: CalibrationWork) -> None:
    """raises InputError for a file that a recipe without calibration would not look at"""
    if options.imatrix is not None:
        raise InputError(f"recipe {recipe} reads no importance matrix; take one that does, such as imatrix-q4_k_m")
    if options.stats is not None:
        raise InputError(f"recipe {recipe} does not calibrate, so it reads and writes no statistics; drop --stats")
    if options.export_imatrix is not None:
        raise InputError(f"recipe {recipe} does not calibrate, so there is no importance matrix to export")


def choose_arithmetic(options: CalibrationWork) -> str:
    """The one asked for, else that of the statistics to be read, else bf16 if this CPU multiplies it faster."""
    if options.arithmetic is not None:
        return options.arithmetic
    if options.reads_statistics:
        by = StatsFile(present(options.stats)).about.calibration
        return by.arithmetic if isinstance(by, TextCalibration) else "fp32"
    return "bf16" if has_fast_bf16() else "fp32"


def has_fast_bf16() -> bool:
    """Whether the CPU has products of bfloat16, as far as this installation can detect."""
    kernels = import_kernels("cpu_kernels")
    return kernels is not None and any(isa in kernels.features() for isa in BF16_ISAS)


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
