"""`evaluate_tasks`: tasks on one model as a dictionary, from a spec to the numbers."""

import time
from pathlib import Path
from typing import Any

from qbench.cache_kinds import DYNAMIC
from qbench.calibration.open_subject import open_subject
from qbench.devices import CPU
from qbench.products import AUTO
from qbench.progress import Progress
from qbench.runtime import load_model
from qbench.tasks.run import run_tasks
from qbench.tasks.settings import TaskSettings


def evaluate_tasks(
    spec: str,
    settings: TaskSettings,
    *,
    recipe: str | None = None,
    kv: str | None = None,
    threads: int | None = None,
    cache: Path | None = None,
    cache_kind: str = DYNAMIC,
    products: str = AUTO,
    device: str = CPU,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The keys that every result begins with, `tasks` as `run_tasks` returns them, and seconds.

    recipe   run the model as this recipe would make it, quantized tensor by tensor while loading
    kv       keep keys and values in this format instead of the model's own
    cache    folder that keeps each answer as it comes, so that a run that was stopped goes on
    cache_kind  of its caches, as qbench.cache_kinds has it
    products how the model multiplies, one of qbench.products
    device   where it runs, one of qbench.devices
    raises   InputError for a model or tasks that cannot be run
    """
    start = time.perf_counter()
    subject = open_subject(spec, recipe, threads, progress, kv=kv, products=products, device=device)
    how = {"products": products, "kind": cache_kind, "threads": subject.threads, "device": device}
    model = load_model(subject.source, **how)
    tasks = run_tasks(model, subject.source, settings, cache=cache, products=products, progress=progress)
    return {**subject.facts(model.impls, model.kernels), "tasks": tasks, "seconds": time.perf_counter() - start}
