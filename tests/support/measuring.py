"""`bench`, `evaluate` and `evaluate_tasks` by keyword, as JSON: each value goes to the settings that know it."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from qbench.measure.speed_figures import MachinePeaks
from qbench.quality.evaluate import evaluate
from qbench.quality.save_reference import save_reference
from qbench.run.options import RunOptions
from qbench.run.work import QualityWork, SpeedWork, TasksWork
from qbench.speed.bench import bench
from qbench.tasks.evaluate import evaluate_tasks


def benched(spec: str, *, machine_peaks: Any = None, **values: Any) -> Any:
    kept = MachinePeaks.from_json(machine_peaks) if isinstance(machine_peaks, dict) else machine_peaks
    return bench(spec, of(SpeedWork, values), run_options(values), machine_peaks=kept).to_json()


def evaluated(spec: str, *, logits_cache: Path | None = None, **values: Any) -> Any:
    return evaluate(spec, of(QualityWork, values), run_options(values), logits_cache=logits_cache).to_json()


def saved_reference(spec: str, path: Path, *, mode: str | None = None, **values: Any) -> Any:
    return save_reference(spec, path, of(QualityWork, values), run_options(values), mode=mode).to_json()


def tasks_of(spec: str, settings: TasksWork, *, answers: Path | None = None, **values: Any) -> Any:
    return evaluate_tasks(spec, settings, run_options(values), cache=answers).to_json()


def of(kind: type, values: dict[str, Any]) -> Any:
    """The settings with the values that are theirs, which `values` loses."""
    own = {field.name: values.pop(field.name) for field in fields(kind) if field.name in values}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in own.items()})


def run_options(values: dict[str, Any]) -> RunOptions:
    """raises TypeError for a value that nobody knows"""
    return RunOptions(**values)
