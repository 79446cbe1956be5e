"""`CaseRunner`: one case, from its definition to its metrics, on the machine that this process runs on.

Three jobs, each in a worker process of its own: the unquantized model's logits, once for each model and text; the
artifact, once for each model, recipe and calibration; then the measurement.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar

from qbench.measure.host.commit import QUANTIZING, code_hash
from qbench.measure.metrics import Metrics
from qbench.measure.records.kinds import AGAIN
from qbench.measure.records.record import Origin
from qbench.measure.speed_figures import MachinePeaks
from qbench.run.case import Case
from qbench.run.choices import AUTO_ISA
from qbench.run.work import CalibrationWork, QualityWork
from qbench.sweeps.job import Job, MadeArtifact, MeasureJob, QuantizeJob, R, ReferenceJob, Work
from qbench.sweeps.job_runner import WORKER, JobFailed, Worker
from qbench.sweeps.messages import JobRequest
from qbench.sweeps.suite.grid import run_options
from qbench.words.written import parse_bytes, parse_share
from quant.json_data import JsonRow
from quant.present import present

STAMP = "made.json"
ISA = "QBENCH_ISA"

OnStage = Callable[[str, tuple[int, int, str] | None], None]  # ("measure", (done, total, activity))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a case: metrics, or the error in one line.

    origin     of another machine that measured it
    warnings   of its quantization
    """

    metrics: Metrics | None = None
    error: str | None = None
    origin: Origin | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stamp(JsonRow):
    """The inputs of an artifact's bytes, and the answer of the job that wrote it.

    made   its file, the code that wrote it, and the cost
    """

    json_omits: ClassVar[tuple[str, ...]] = ("fingerprint", "recipe_sha256", "made")
    json_flat: ClassVar[tuple[str, ...]] = ("made",)

    recipe: str | None = None
    calibration: CalibrationWork | None = None
    code: str | None = None
    fingerprint: str | None = None
    recipe_sha256: str | None = None
    made: MadeArtifact | None = None


class CaseRunner:
    """Cases of one folder.

    artifacts   folder of kept files, one folder per artifact
    temporary   folder on the same file system, for files that may be lost at any moment
    worker      command that runs jobs, see `qbench.sweeps.worker`
    """

    def __init__(self, artifacts: Path, temporary: Path, worker: Sequence[str] = WORKER) -> None:
        self.artifacts, self.temporary, self.worker = artifacts, temporary, Worker(worker)
        self.launch = 1  # number of the last case's
        self.references: dict[tuple[str, QualityWork], JobFailed | None] = {}  # those that ran, and how they failed
        self.peaks: dict[str, MachinePeaks] = {}  # `_place` -> of the machine, from the newest row

    def close(self) -> None:
        self.worker.close()

    def run(self, case: Case, on_stage: OnStage) -> Outcome:
        """A case that fails says why in one line."""
        self.new_launch(case)
        try:
            reference_seconds = self.require_reference(case, on_stage)
            path, made = self.artifact(case, on_stage)
            metrics, wall_seconds = self.measured(case, path, on_stage)
            if metrics.speed is not None and metrics.speed.peaks is not None:
                self.peaks[_place(case)] = metrics.speed.peaks
        except JobFailed as failure:
            return Outcome(error=str(failure))
        kept = os.path.relpath(path, self.artifacts.parent)
        facts = metrics.facts and replace(metrics.facts, model=case.model, recipe=case.recipe, artifact=kept)
        return Outcome(
            replace(
                metrics,
                facts=facts,
                wall_seconds=wall_seconds,
                overhead_seconds=overhead(wall_seconds, metrics),
                reference_seconds=reference_seconds,
                quantize_seconds=made.quantize_seconds,
                quantize_peak_rss_bytes=made.quantize_peak_rss_bytes,
            ),
            warnings=made.warnings,
        )

    def new_launch(self, case: Case) -> None:
        """Ends the worker before the first case of a launch: processes forked from one worker share its layout."""
        number = 1 if case.kind != AGAIN else case.launch or 2
        if number != self.launch:
            self.worker.close()
        self.launch = number

    def measured(self, case: Case, artifact: Path, on_stage: OnStage) -> tuple[Metrics, float]:
        """The measurement, and the seconds of its process. raises JobFailed"""
        forced = {ISA: None if case.isa == AUTO_ISA else case.isa}  # in the measurement alone
        metrics = self.job(self.measurement(case, artifact), on_stage, forced)
        return metrics, self.worker.seconds

    def measurement(self, case: Case, artifact: Path) -> MeasureJob:
        """The job that measures."""
        limit = None if case.memory is None else limit_bytes(case.memory, artifact)
        return MeasureJob(
            artifact=str(artifact),
            model=case.model,
            options=replace(run_options(case), memory_bytes=limit),
            logits=str(self.temporary),
            work=Work(case.quality, case.speed and replace(case.speed, batch=case.batch), case.tasks),
            peaks=self.peaks.get(_place(case)) if case.speed else None,
        )

    def require_reference(self, case: Case, on_stage: OnStage) -> float | None:
        """Runs the reference once per model and text; if it failed, every case that needs it fails in the same words.

        returns   its seconds, if it is run for this case
        raises    JobFailed
        """
        if case.quality is None:
            return None
        key, seconds = (case.model, replace(case.quality, text_sha256=None)), None
        if key not in self.references:
            about = case.model, case.fingerprint, case.threads
            job = ReferenceJob(*about, str(self.temporary), quality=case.quality)
            try:
                self.job(job, on_stage)
                self.references[key], seconds = None, self.worker.seconds
            except JobFailed as failure:
                self.references[key] = failure
        if failure := self.references[key]:
            raise failure
        return seconds

    def artifact(self, case: Case, on_stage: OnStage) -> tuple[Path, MadeArtifact]:
        """The recipe's file, written unless the one there has the same model, recipe, calibration and quantizing code.

        returns   its path, and the answer of the job that wrote it
        raises    JobFailed
        """
        folder = self.folder(case)
        made = self.made(case)
        if made is None:
            fresh = self.temporary / folder.name
            fresh.mkdir(exist_ok=True)
            about, recipe = (case.model, case.fingerprint, case.threads), present(case.recipe)
            job = QuantizeJob(*about, str(fresh), recipe=recipe, calibration=case.calibration)
            made = self.job(job, on_stage)
            stamp = replace(_stamp(case), made=made)
            (fresh / STAMP).write_text(json.dumps(stamp.to_json(), indent=1) + "\n", encoding="utf-8")
            old = Path(mkdtemp(dir=self.temporary))
            if folder.exists():
                os.rename(folder, old / folder.name)  # a kill leaves the old one whole or gone
            os.rename(fresh, folder)
            shutil.rmtree(old, ignore_errors=True)
        return folder / made.file, made

    def folder(self, case: Case) -> Path:
        """Folder of the artifact of the case's model and recipe."""
        return self.artifacts / re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{case.model}-{case.recipe}").strip("_")

    def made(self, case: Case) -> MadeArtifact | None:
        """The answer of the job that wrote the artifact; None for no artifact, and for one of something else."""
        stamp, folder = _read_stamp(self.folder(case) / STAMP), self.folder(case)
        if stamp is None or stamp.made is None or replace(stamp, made=None) != _stamp(case):
            return None
        return stamp.made if (folder / stamp.made.file).exists() else None

    def job(self, job: Job[R], on_stage: OnStage, environment: dict[str, str | None] | None = None) -> R:
        """raises JobFailed"""
        on_stage(job.name, None)
        log = self.temporary / "worker.log"

        def progress(*state) -> None:
            on_stage(job.name, state)

        request = JobRequest(job.name, job.to_json())
        return job.answer(self.worker.run(request, log, progress=progress, environment=environment))


def limit_bytes(text: str, artifact: Path) -> int:
    """Bytes of a limit. artifact: the file or folder of the weights, of which "40%" is a share"""
    share = parse_share(text)
    if share is None:
        return parse_bytes(text)
    files = [artifact] if artifact.is_file() else [path for path in artifact.iterdir() if path.is_file()]
    return int(share * sum(path.stat().st_size for path in files if path.suffix in (".gguf", ".safetensors")))


def _place(case: Case) -> str:
    """Instruction set and device of a case, which the machine's peaks depend on."""
    return f"{case.isa} {case.device}"


def _stamp(case: Case) -> Stamp:
    """The inputs of an artifact's bytes."""
    return Stamp(
        recipe=case.recipe,
        calibration=case.calibration,
        code=code_hash(QUANTIZING),
        fingerprint=case.fingerprint,
        recipe_sha256=case.recipe_sha256,
    )


def overhead(wall_seconds: float, metrics: Metrics) -> float:
    """Seconds of a measurement, from the fork of its process to its end, beyond the time of a plain script.

    Such a script loads the model and runs the same forward passes. Overhead is starting the process, reading the text,
    statistics, and sending the row. Machine peaks are part of the row; they are measured again unless the previous case
    just did, and that has seconds of its own, `peaks_seconds`. Speed and quality each load the model, and both count as
    loading.
    """
    own = (metrics.timed_seconds, metrics.load_seconds, metrics.peaks_seconds)
    return wall_seconds - sum(seconds or 0.0 for seconds in own)


def _read_stamp(path: Path) -> Stamp | None:
    """The stamp of an artifact's folder; None if it cannot be read, so that the artifact is made again."""
    try:
        return Stamp.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
