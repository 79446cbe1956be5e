"""`CaseRunner`: one case, from its dictionary to its metrics, on the machine that this process runs on.

Three jobs, each in a worker process of its own: the unquantized model's logits, once for each model and text; the
artifact, once for each model, recipe and calibration; then the measurement.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qbench.measure.host.commit import QUANTIZING, code_hash
from qbench.sweep.job_runner import WORKER, JobFailed, Worker
from qbench.sweep.suite.cases import Case
from qbench.sweep.suite.grid import own_cache
from qbench.sweep.suite.suite_names import AUTO

STAMP = "made.json"
ISA = "QBENCH_ISA"

OnStage = Callable[[str, tuple[int, int, str] | None], None]  # ("measure", (done, total, what is being done))


class CaseRunner:
    """Cases of one folder.

    artifacts   folder of what is kept, one folder an artifact
    temporary   folder on the same file system, of what may be lost at any moment
    worker      command that runs jobs, see `qbench.sweep.worker`
    """

    def __init__(self, artifacts: Path, temporary: Path, worker: Sequence[str] = WORKER) -> None:
        self.artifacts, self.temporary, self.worker = artifacts, temporary, Worker(worker)
        self.references: dict[str, JobFailed | None] = {}  # what has been run, and how it failed
        self.ceilings: dict[str, dict[str, Any]] = {}  # `_place` -> what the machine can do, as a row told it

    def close(self) -> None:
        self.worker.close()

    def run(self, case: Case, on_stage: OnStage) -> dict[str, Any]:
        """{metrics, error}: one of them is None. A case that fails says why in one line."""
        try:
            cost = self.require_reference(case, on_stage) if case["eval"] else {}
            made = self.artifact(case, on_stage)
            forced = {ISA: None if case["isa"] == AUTO else case["isa"]}  # in the measurement alone
            metrics = self.job("measure", self.measurement(case, made["artifact"]), on_stage, forced)
            cost |= of_harness(self.worker.seconds, metrics)
            self.ceilings |= {_place(case): metrics["ceilings"]} if "ceilings" in metrics else {}
        except JobFailed as failure:
            return {"metrics": None, "error": str(failure)}
        cost |= {key: value for key, value in made.items() if key.startswith("quantize_")}
        kept = os.path.relpath(made["artifact"], self.artifacts.parent)
        named = {"model": case["model"], "recipe": case["recipe"], "artifact": kept}
        return {"metrics": metrics | cost | named, "error": None}

    def measurement(self, case: Case, artifact: Path) -> dict[str, Any]:
        """The arguments of the job that measures."""
        kv = None if case["cache"] == own_cache(case["recipe"]) else case["cache"]
        return {
            "artifact": str(artifact),
            "model": case["model"],
            "eval": _settings(case["eval"]),
            "tasks": case.get("tasks"),
            "bench": case["bench"] and case["bench"] | {"batch": case["batch"]},
            "kv": kv,
            **{name: case[name] for name in ("cache_kind", "products", "device") if name in case},
            **({"ceilings": self.ceilings[_place(case)]} if case["bench"] and _place(case) in self.ceilings else {}),
            "threads": case["threads"],
            "logits": str(self.temporary),
        }

    def require_reference(self, case: Case, on_stage: OnStage) -> dict[str, float]:
        """Runs the reference once a model and text; where it failed, every case that needs it fails in the same words.

        returns   {reference_seconds} of the case that it is run for
        raises    JobFailed
        """
        cost = {}
        settings = _settings(case["eval"])
        key = json.dumps([case["model"], settings], sort_keys=True)
        if key not in self.references:
            about = {name: case[name] for name in ("model", "fingerprint", "threads")}
            try:
                self.job("reference", about | {"eval": settings, "folder": str(self.temporary)}, on_stage)
                self.references[key] = None
                cost = {"reference_seconds": self.worker.seconds}
            except JobFailed as failure:
                self.references[key] = failure
        if failure := self.references[key]:
            raise failure
        return cost

    def artifact(self, case: Case, on_stage: OnStage) -> dict[str, Any]:
        """The recipe's file, written unless the one there has the same model, recipe, calibration and quantizing code.

        returns   {artifact: its path, quantize_seconds, ...} as the job that wrote it told
        raises    JobFailed
        """
        folder = self.folder(case)
        made = self.made(case)
        if made is None:
            fresh = self.temporary / folder.name
            fresh.mkdir(exist_ok=True)
            about = {name: case[name] for name in ("model", "fingerprint", "recipe", "threads")}
            about |= {"calibration": _settings(case.get("calibration")) or {}, "folder": str(fresh)}
            made = _stamp(case) | self.job("quantize", about, on_stage)
            (fresh / STAMP).write_text(json.dumps(made, indent=1) + "\n")
            if folder.exists():
                os.rename(folder, self.temporary / f"{folder.name}.old")  # a kill leaves the old one whole or gone
            os.rename(fresh, folder)
        return made | {"artifact": folder / made["file"]}

    def folder(self, case: Case) -> Path:
        """Where the artifact of the case's model and recipe lies."""
        return self.artifacts / re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{case['model']}-{case['recipe']}").strip("_")

    def made(self, case: Case) -> dict[str, Any] | None:
        """What the job that wrote the artifact told; None where there is none, or of something else."""
        stamp, folder = _stamp(case), self.folder(case)
        made = _read_stamp(folder / STAMP)
        is_same = {key: made.get(key) for key in stamp} == stamp and (folder / made["file"]).exists()
        return made if is_same else None

    def job(
        self, name: str, arguments: dict[str, Any], on_stage: OnStage, environment: dict[str, str | None] | None = None
    ) -> dict[str, Any]:
        """raises JobFailed"""
        on_stage(name, None)
        log = self.temporary / "worker.log"

        def progress(*state) -> None:
            on_stage(name, state)

        return self.worker.run({"job": name, **arguments}, log, progress=progress, environment=environment)


def _place(case: Case) -> str:
    """Where it runs: what ceilings are of."""
    return f"{case['isa']} {case.get('device')}"


def _stamp(case: Case) -> dict[str, Any]:
    """What an artifact's bytes depend on."""
    named = ("fingerprint", "recipe", "recipe_sha256")
    of_case = {name: case[name] for name in named if name in case}
    return of_case | {"calibration": case.get("calibration"), "code": code_hash(QUANTIZING)}


def of_harness(wall_seconds: float, metrics: dict[str, Any]) -> dict[str, float]:
    """{wall_seconds, overhead_seconds} of a measurement, from the fork of its process to its end.

    Overhead is what a script that loads the model and runs the same passes would not take: starting the process,
    reading the text, statistics, and sending the row. What the machine can do at most is a figure of the row, measured
    where no case right before told it, and has seconds of its own, `ceilings_seconds`. Speed and quality each load the
    model, and both count as loading.
    """
    own = sum(metrics.get(name, 0.0) for name in ("timed_seconds", "load_seconds", "ceilings_seconds"))
    return {"wall_seconds": wall_seconds, "overhead_seconds": wall_seconds - own}


def _settings(described: dict[str, Any] | None) -> dict[str, Any] | None:
    """A case's section as the job takes it: what lies at the path of its text is for telling cases apart."""
    return described and {name: value for name, value in described.items() if name != "text_sha256"}


def _read_stamp(path: Path) -> dict[str, Any]:
    """The stamp of an artifact's folder; {} where there is none that can be read, so that it is made anew."""
    try:
        stamp = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}
