"""The noise floor of tasks: how many of its own answers a model changes when it is computed otherwise."""

import time
from typing import Any

from qbench.calibration.open_subject import open_subject
from qbench.comparison.measured import Measuring
from qbench.comparison.noise_floor import case_of_floor, described, farthest, other_threads
from qbench.comparison.task_cells import task_cells
from qbench.measure.quality_figures import ProtocolFacts, Quality, TaskResult
from qbench.measure.records.kinds import FloorMetrics, FloorVariant
from qbench.measure.records.record import Record, make_record
from qbench.progress import Progress
from qbench.run.choices import set_threads
from qbench.run.options import RunOptions
from qbench.runtime.load import load_model
from qbench.statistics.cell import NEUTRAL, Cell
from qbench.tasks.run import run_tasks
from quant.json_data import keys_of

FLIPS = frozenset({"flips"})  # null for a task whose items are not right or wrong


def measure_task_floors(spec: str, measuring: Measuring, progress: Progress | None = None) -> list[Record]:
    """Records of kind "noise-floor", one per task with items that pair.

    The metrics of each hold the task's figure of the model as it runs; for each of `variants` the change of that and
    the answers lost and gained; and `floor`: the task -> the largest distance of the variants.
    raises   InputError as `evaluate_tasks`
    """
    start, compute = time.perf_counter(), measuring.options.compute
    subject = open_subject(spec, measuring.options, progress)
    settings = measuring.task_settings
    model = load_model(subject.source, subject.options)

    def answers(of: Any, threads: int) -> dict[str, TaskResult]:
        set_threads(threads)
        return run_tasks(of, subject.source, settings, compute=compute, progress=progress)

    base, other = answers(model, subject.threads), other_threads(subject.threads)
    cells = {("threads", f"{other} instead of {subject.threads}"): _cells(base, answers(model, other))}
    rounded = load_model(subject.source, RunOptions(threads=subject.threads), impl="bf16")
    cells["bf16", "linears rounded to bfloat16"] = _cells(base, answers(rounded, subject.threads))
    facts, seconds = subject.facts(model.impls), time.perf_counter() - start
    records = []
    for task in next(iter(cells.values())):
        variants = {name: _distance(how, of[task]) for (name, how), of in cells.items()}
        floor = max(variant.distance(task) for variant in variants.values())
        entry = base[task]
        protocol = (entry.protocol or {}) | {"name": task, "hash": entry.protocol_hash}
        metrics = FloorMetrics(
            facts=facts,
            quality=Quality(protocol=ProtocolFacts.from_json(protocol), lacks=keys_of(Quality)),
            tasks={task: entry},
            variants=variants,
            floor={task: floor},
            seconds=seconds,
        )
        records.append(make_record(case_of_floor(subject, entry.protocol_hash or ""), metrics))
    return records


def _cells(base: dict[str, TaskResult], found: dict[str, TaskResult]) -> dict[str, Cell]:
    """Task -> its cell; a group has no cell, as its tasks have the same items."""
    return {cell.metric: cell for cell in task_cells(base, found, []) if cell.is_tested}


def _distance(how: str, cell: Cell) -> FloorVariant:
    """Share of right-or-wrong answers that changed: the largest possible change of the accuracy."""
    change = described(cell.estimate)
    if cell.flips is None:
        return FloorVariant(how=how, change=change, floor=farthest(cell.estimate, NEUTRAL[cell.kind]), explicit=FLIPS)
    lost, gained, num_items = cell.flips.right_to_wrong, cell.flips.wrong_to_right, cell.flips.num_items
    flips = {"lost": lost, "gained": gained, "num_items": num_items}
    return FloorVariant(how=how, change=change, flips=flips, floor=(lost + gained) / num_items)
