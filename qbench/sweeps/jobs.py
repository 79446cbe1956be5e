"""The jobs of a sweep, each a function that runs in a worker of its own."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from qbench.calibration.run import Run
from qbench.calibration.write import write_quantized
from qbench.measure.host.commit import QUANTIZING, code_hash, code_version
from qbench.measure.host.machine import machine
from qbench.measure.host.memory import peak_rss_bytes
from qbench.measure.metrics import Facts, Metrics
from qbench.progress import Progress
from qbench.quality.evaluate import evaluate, read_text, setting_of
from qbench.quality.kld.reference_logits import cache_path, mode_that_fits, save_logits
from qbench.quality.protocols.conventions import DEFAULT, make_scorings
from qbench.run.choices import set_threads
from qbench.run.options import RunOptions
from qbench.run.work import CalibrationWork, SpeedWork
from qbench.runtime import load_model
from qbench.sources import open_source
from qbench.speed.bench import bench
from qbench.sweeps.job import (
    Job,
    KeptReferences,
    MadeArtifact,
    MeasureJob,
    ModelProbe,
    ProbeJob,
    QuantizeJob,
    ReferenceJob,
)
from qbench.sweeps.probe import probe_model
from qbench.tasks.evaluate import evaluate_tasks
from quant.artifacts import make_artifact_job
from quant.artifacts.output import artifact_name
from quant.errors import InputError
from quant.json_data import JsonData
from quant.models import ModelConfig
from quant.present import present
from quant.recipes import get_recipe
from quant.source import Source

Timed = Callable[[MeasureJob, SpeedWork, Progress], Metrics]


def open_unchanged(model: str, fingerprint: str | None) -> Source:
    """raises InputError if the model is no longer the one that the sweep's rows are about to name"""
    source = open_source(model)
    if source.fingerprint() != fingerprint:
        raise InputError(f"{model} changed while the sweep ran; start the sweep again to measure the new one")
    return source


def reference(job: ReferenceJob, progress: Progress) -> KeptReferences:
    """Run the unquantized model over the text and keep the logits that are not kept yet.

    Whole if they fit, else as top-k: then each row's `kld_reference` says how far its divergence may be off.
    """
    source, kept = open_unchanged(job.model, job.fingerprint), Path(job.folder)
    text = read_text(job.quality.text, job.model, kept=kept)
    setting = setting_of(source, text, job.quality.max_windows, kept=kept)
    scorings = make_scorings(setting, job.quality.protocols or (DEFAULT,))
    vocab_size = ModelConfig.of(source).vocab_size
    named = {"model": job.model, "fingerprint": source.fingerprint()}
    paths = [cache_path(kept, scoring.protocol, source.fingerprint()) for scoring in scorings]
    absent = [(scoring, path) for scoring, path in zip(scorings, paths, strict=True) if not path.exists()]
    loaded = load_model(source, RunOptions(threads=job.threads), impl="reference") if absent else None
    for scoring, path in absent:
        mode = mode_that_fits(scoring, vocab_size, room=shutil.disk_usage(job.folder).free // 2)
        if mode is not None:
            save_logits(path, present(loaded), scoring, vocab_size, mode=mode, named=named, progress=progress)
    return KeptReferences(
        tuple(scoring.protocol.name for scoring, path in zip(scorings, paths, strict=True) if path.exists())
    )


def quantize(job: QuantizeJob, progress: Progress) -> MadeArtifact:
    """Write the artifact of one recipe into the folder."""
    recipe = get_recipe(job.recipe)
    source = open_unchanged(job.model, job.fingerprint)
    set_threads(job.threads)
    start = time.perf_counter()
    making = make_artifact_job(source, recipe, Path(job.folder) / artifact_name("model", recipe))
    write_quantized(making, job.calibration or CalibrationWork(), Run(job.threads or 1, progress=progress))
    return MadeArtifact(
        file=present(making.output).path.name,
        code=code_hash(QUANTIZING),
        quantize_seconds=time.perf_counter() - start,
        quantize_peak_rss_bytes=peak_rss_bytes(),
        warnings=tuple(making.warnings()),
    )


def timed_alone(job: MeasureJob, case: SpeedWork, progress: Progress) -> Metrics:
    return bench(job.artifact, case, job.options, machine_peaks=job.peaks, progress=progress)


def measure(job: MeasureJob, progress: Progress, timed: Timed = timed_alone) -> Metrics:
    """Speed and memory first, while the process holds nothing else, then quality against the unquantized model.

    timed   measures the speed; ranks that divide a model have their own
    """
    parts, work = [], job.work
    if work.speed is not None:
        parts.append(timed(job, work.speed, progress))
    if work.quality is not None:
        quality = replace(work.quality, reference=job.model)
        parts.append(evaluate(job.artifact, quality, job.options, logits_cache=Path(job.logits), progress=progress))
    if work.tasks is not None:
        found = evaluate_tasks(job.artifact, work.tasks, job.options, progress=progress)
        parts.append(replace(found, timed_seconds=found.seconds))  # lm-eval does not report its own time apart
    return joined(parts)


def joined(parts: Sequence[Metrics]) -> Metrics:
    """All that was measured of one artifact, with the sums of their seconds."""
    found = Metrics()
    for part in parts:
        found = replace(
            found, **{one.name: value for one in fields(part) if (value := getattr(part, one.name)) is not None}
        )
    figures = [part.speed.figures.timed_seconds if part.speed and part.speed.figures else None for part in parts]
    timed = [part.timed_seconds or of_speed for part, of_speed in zip(parts, figures, strict=True)]
    return replace(
        found,
        facts=found.facts and _with_prefill_shares(found.facts, parts),
        timed_seconds=sum(filter(None, timed)),
        load_seconds=sum(part.load_seconds or 0.0 for part in parts),
        peaks_seconds=sum(part.peaks_seconds or 0.0 for part in parts),
        seconds=sum(part.seconds or 0.0 for part in parts),
        explicit=frozenset().union(*(part.explicit for part in parts)),
    )


def _with_prefill_shares(facts: Facts, parts: Sequence[Metrics]) -> Facts:
    """The facts with shares of the same prompts: of those that quality is measured on, else of the timed ones."""
    own = [part.facts for part in parts if part.facts is not None]
    of = next((each for each in own if each.prefill_mass is not None), own[0] if own else facts)
    return replace(facts, prefill_blocks=of.prefill_blocks, prefill_mass=of.prefill_mass)


def probe(job: ProbeJob, progress: Progress) -> ModelProbe:
    return probe_model(job, progress)


def preload() -> None:
    """Loads scipy, which jobs import late, and reads code and machine: a later edit counts for the next worker."""
    import scipy.special  # noqa: F401

    code_version()
    code_hash(QUANTIZING)
    machine()


def by_json(kind: type[Job], function: Callable[[Any, Progress], JsonData]) -> Callable[..., JsonData]:
    """The job as the worker calls it: by the fields of its class."""

    def run(progress: Progress, **arguments: Any) -> JsonData:
        return function(kind.from_json(arguments), progress)

    return run


JOBS = {
    kind.name: by_json(kind, function)
    for kind, function in (
        (ReferenceJob, reference),
        (QuantizeJob, quantize),
        (MeasureJob, measure),
        (ProbeJob, probe),
    )
}
