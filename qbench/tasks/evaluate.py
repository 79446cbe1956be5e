"""`evaluate_tasks`: tasks on one model as a dictionary, from a spec to the numbers."""

import time
from dataclasses import replace
from pathlib import Path

from qbench.calibration.open_subject import open_subject
from qbench.measure.metrics import Metrics
from qbench.progress import Progress
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.work import HIDDEN, VISIBLE, TasksWork
from qbench.runtime import load_model
from qbench.tasks.names import check_task_names
from qbench.tasks.run import run_tasks
from quant.errors import InputError


def evaluate_tasks(
    spec: str,
    settings: TasksWork,
    options: RunOptions = DEFAULTS,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Metrics:
    """The results of tasks, or of groups of them, by name.

    options  with a policy that evicts, and no prefill chunk, prompts pass in chunks as CacheSpec.for_quality says, or
             are cut at the question if the settings have one
    cache    folder that keeps each answer as it comes, so that a run that was stopped goes on
    raises   InputError for a model or tasks that cannot be run
    """
    start = time.perf_counter()
    if settings.question == VISIBLE and options.prefill_chunk is not None:
        raise InputError(
            f"question {VISIBLE} compresses a whole prompt at once, which a prefill chunk of {options.prefill_chunk} "
            f"tokens does before the question is seen; leave the chunk out, or choose question {HIDDEN}"
        )
    check_task_names(settings)
    if settings.question is None:
        options = replace(options, prefill_chunk=options.cache_spec.for_quality().prefill_chunk)
    subject = open_subject(spec, options, progress)
    model = load_model(subject.source, subject.options)
    tasks = run_tasks(model, subject.source, settings, cache=cache, compute=options.compute, progress=progress)
    return Metrics(
        facts=subject.facts(model.impls, model.kernels, model.prefill_tally),
        tasks=tasks,
        seconds=time.perf_counter() - start,
    )
