"""`run_sweep`: every case of a suite measured once and recorded, whenever and however often it is started.

Everything unfinished lies in `out_dir/tmp`, which a new run clears; artifacts move to `artifacts/` in one rename and
rows to `records.jsonl` in one write. So a sweep may be killed at any moment and started again.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qbench.calibration.options import is_file_spec
from qbench.harness.commit import QUANTIZING, code_hash, code_version
from qbench.harness.job_runner import WORKER, JobFailed, run_job
from qbench.harness.machine import available_cores, machine
from qbench.harness.record import append_record, case_key, make_record, read_records
from qbench.harness.suite import Suite
from quant.artifacts.file_bytes import sha256_file
from quant.errors import InputError
from quant.recipes import get_recipe

STAMP = "made.json"


@dataclass(frozen=True, slots=True)
class SweepEvent:
    """What a sweep is doing, for whoever shows it."""

    kind: str  # "start", "progress", "done", "skipped", "failed"
    index: int  # of the case, from 0
    total: int  # cases
    model: str
    recipe: str
    stage: str = ""  # "reference", "quantize", "measure"
    progress: tuple[int, int, str] | None = None
    record: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SweepResult:
    records: Path
    measured: int
    skipped: int
    failed: int


OnEvent = Callable[[SweepEvent], None]


def run_sweep(
    suite: Suite, out_dir: str | Path, on_event: OnEvent | None = None, *, worker: Sequence[str] = WORKER
) -> SweepResult:
    """Measure what `out_dir/records.jsonl` does not hold yet, one case after another.

    A case counts as measured when a row has the same case, machine and code; an edited text or recipe file makes
    another case. A case that fails is recorded with its
    error, and tried again by the next run.
    raises   InputError if out_dir cannot be written or another sweep runs there, or if a model cannot be opened
    """
    out_dir = Path(out_dir).resolve()
    with exclusive(out_dir):
        return _Sweep(suite, out_dir, on_event or (lambda event: None), worker).run()


@contextmanager
def exclusive(out_dir: Path) -> Iterator[None]:
    """Makes the folder this sweep's own, with an empty `tmp` that is gone afterwards."""
    temporary = out_dir / "tmp"
    try:
        (out_dir / "artifacts").mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out_dir / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"{out_dir}: cannot write there: {error.strerror}; choose another folder") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(f"{out_dir}: another sweep runs there; wait for it or choose another folder") from None
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(descriptor)


class _Sweep:
    """One run: the suite, where its files lie, and which rows are there already."""

    def __init__(self, suite: Suite, out_dir: Path, on_event: OnEvent, worker: Sequence[str]) -> None:
        self.suite = suite
        self.out_dir = out_dir
        self.temporary = out_dir / "tmp"
        self.records = out_dir / "records.jsonl"
        self.on_event = on_event
        self.worker = worker
        self.counts = {"done": 0, "skipped": 0, "failed": 0}
        self.reference: dict[str, Any] | JobFailed | None = None  # of the model at hand: None until it is needed
        self.total = len(suite.models) * len(suite.recipes)

    def run(self) -> SweepResult:
        measured = self.measured_cases()
        for position, model in enumerate(self.suite.models):
            fingerprint = self.job({"job": "describe", "model": model})["fingerprint"]
            self.reference = None
            for offset, recipe in enumerate(self.suite.recipes):
                event = (position * len(self.suite.recipes) + offset, self.total, model, recipe)
                case = self.case(model, fingerprint, recipe)
                if case_key(case) in measured:
                    self.tell("skipped", event)
                else:
                    self.tell("start", event)
                    record = self.row(case, event)
                    append_record(self.records, record)
                    self.tell("failed" if record["error"] else "done", event, record=record)
        return SweepResult(self.records, self.counts["done"], self.counts["skipped"], self.counts["failed"])

    def row(self, case: dict[str, Any], event: tuple) -> dict[str, Any]:
        """The case's record, whether it was measured or failed."""
        try:
            if self.suite.eval:
                self.require_reference(case["model"], case["fingerprint"], event)
            return make_record(case, self.measure(case["model"], case["fingerprint"], case["recipe"], event))
        except JobFailed as failure:
            return make_record(case, None, str(failure))

    def measured_cases(self) -> set[str]:
        if not self.records.exists():
            return set()
        here = (machine()["id"], code_version()["code"])
        rows = (row for row in read_records(self.records) if row["status"] == "ok")
        return {row["key"] for row in rows if (row["machine"]["id"], row["code"]) == here}

    def case(self, model: str, fingerprint: str, recipe: str) -> dict[str, Any]:
        """What defines a case, and nothing that comes out of it."""
        bench = self.suite.bench
        return {
            "model": model,
            "fingerprint": fingerprint,
            "recipe": recipe,
            **recipe_file(recipe),
            "cache": get_recipe(recipe).kv or "dense-f32",
            "isa": os.environ.get("QBENCH_ISA", "auto"),
            "device": "cpu",
            "threads": self.suite.threads or available_cores(),
            "context": bench.longest if bench else None,
            "batch": 1,
            "eval": self.evaluated(),
            "bench": self.settings("bench"),
            **({"calibration": self.calibration()} if self.suite.calibration else {}),
        }

    def evaluated(self) -> dict[str, Any] | None:
        """The settings of `eval`, and which text lies at the path: the code makes the one that has no path."""
        settings = self.settings("eval")
        if settings is None or settings["text"] is None:
            return settings
        return settings | {"text_sha256": sha256_file(Path(settings["text"]))}

    def calibration(self) -> dict[str, Any] | None:
        """The settings of `calibration`, and which text lies at the path."""
        settings = self.settings("calibration")
        if settings is None or settings["text"] is None or not is_file_spec(settings["text"]):
            return settings
        return settings | {"text_sha256": sha256_file(Path(settings["text"]))}

    def settings(self, section: str) -> dict[str, Any] | None:
        values = getattr(self.suite, section)
        return None if values is None else asdict(values)

    def require_reference(self, model: str, fingerprint: str, event: tuple) -> None:
        """Runs the reference once a model; where it failed, every case that needs it fails in the same words."""
        if self.reference is None:
            settings = {**self.settings("eval"), "threads": self.suite.threads, "folder": str(self.temporary)}
            job = {"job": "reference", "model": model, "fingerprint": fingerprint, **settings}
            try:
                self.reference = self.job(job, "reference", event)
            except JobFailed as failure:
                self.reference = failure
        if isinstance(self.reference, JobFailed):
            raise self.reference

    def measure(self, model: str, fingerprint: str, recipe: str, event: tuple) -> dict[str, Any]:
        made = self.artifact(model, fingerprint, recipe, event)
        artifact = made["artifact"]
        job = {"job": "measure", "artifact": str(artifact), "model": model, "logits": str(self.temporary)}
        settings = {"eval": self.settings("eval"), "bench": self.settings("bench"), "threads": self.suite.threads}
        metrics = self.job(job | settings, "measure", event)
        cost = {key: value for key, value in made.items() if key.startswith("quantize_")}
        named = {"model": model, "recipe": recipe, "artifact": str(artifact.relative_to(self.out_dir))}
        return metrics | cost | named

    def artifact(self, model: str, fingerprint: str, recipe: str, event: tuple) -> dict[str, Any]:
        """The recipe's file, written unless the one there has the same model, recipe, calibration and quantizing code.

        returns   {artifact: its path, quantize_seconds, ...} as the job that wrote it told
        """
        calibration = self.calibration()
        stamp = {
            "fingerprint": fingerprint,
            "recipe": recipe,
            "calibration": calibration,
            "code": code_hash(QUANTIZING),
        } | recipe_file(recipe)
        slug = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{model}-{recipe}").strip("_")
        folder = self.out_dir / "artifacts" / slug
        made = _read_stamp(folder / STAMP)
        if {key: made.get(key) for key in stamp} != stamp or not (folder / made["file"]).exists():
            fresh = self.temporary / slug
            fresh.mkdir(exist_ok=True)
            job = {
                "job": "quantize",
                "model": model,
                "fingerprint": fingerprint,
                "recipe": recipe,
                "calibration": self.settings("calibration") or {},
                "threads": self.suite.threads,
                "folder": str(fresh),
            }
            made = stamp | self.job(job, "quantize", event)
            (fresh / STAMP).write_text(json.dumps(made, indent=1) + "\n")
            if folder.exists():
                os.rename(folder, self.temporary / f"{slug}.old")  # a kill leaves the old one whole or gone
            os.rename(fresh, folder)
        return made | {"artifact": folder / made["file"]}

    def job(self, job: dict[str, Any], stage: str = "", event: tuple | None = None) -> dict[str, Any]:
        def progress(*state) -> None:
            if event is not None:
                self.tell("progress", event, stage=stage, progress=state)

        if event is not None:
            self.tell("progress", event, stage=stage)
        return run_job(job, self.temporary / "worker.log", command=self.worker, progress=progress)

    def tell(self, kind: str, event: tuple, **details: Any) -> None:
        if kind in self.counts:
            self.counts[kind] += 1
        self.on_event(SweepEvent(kind, *event, **details))


def recipe_file(recipe: str) -> dict[str, str]:
    """{recipe_sha256} of a recipe that is a file, which may say something else tomorrow; {} for a named one."""
    return {"recipe_sha256": sha256_file(Path(recipe))} if recipe.endswith((".yaml", ".yml")) else {}


def _read_stamp(path: Path) -> dict[str, Any]:
    """The stamp of an artifact's folder; {} where there is none that can be read, so that it is made anew."""
    try:
        stamp = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}
