"""The noise floor of tasks: how many of its own answers a model changes when it is computed otherwise."""

import time
from typing import Any

from qbench.calibration.open_subject import open_subject
from qbench.compare.measured import Measuring
from qbench.compare.noise_floor import case_of_floor, described, farthest, other_threads
from qbench.compare.side import Record
from qbench.measure.records.record import make_record
from qbench.products import AUTO
from qbench.progress import Progress
from qbench.runtime.load import load_model, set_threads
from qbench.statistics.cell import NEUTRAL, Cell
from qbench.statistics.task_cells import task_cells
from qbench.tasks.run import run_tasks


def measure_task_floors(spec: str, measuring: Measuring, progress: Progress | None = None) -> list[Record]:
    """Records of kind "noise-floor", one a task whose items pair.

    The metrics of each hold the task's figure of the model as it runs; for each of `variants` the change of that and
    the answers lost and gained; and `floor`: the task -> the largest distance of the variants.
    raises   InputError as `evaluate_tasks`
    """
    start, products = time.perf_counter(), measuring.products or AUTO
    subject = open_subject(spec, None, measuring.threads, progress, products=products)
    settings = measuring.task_settings
    model = load_model(subject.source, products=products, threads=subject.threads)

    def answers(of: Any, threads: int) -> dict[str, Any]:
        set_threads(threads)
        return run_tasks(of, subject.source, settings, products=products, progress=progress)

    base, other = answers(model, subject.threads), other_threads(subject.threads)
    cells = {("threads", f"{other} instead of {subject.threads}"): _cells(base, answers(model, other))}
    rounded = load_model(subject.source, impl="bf16", threads=subject.threads)
    cells["bf16", "linears rounded to bfloat16"] = _cells(base, answers(rounded, subject.threads))
    facts, seconds = subject.facts(model.impls), time.perf_counter() - start
    records = []
    for task in next(iter(cells.values())):
        variants = {name: {"how": how, **_distance(of[task])} for (name, how), of in cells.items()}
        floor = max(variant["floor"] for variant in variants.values())
        protocol = base[task]["protocol"] | {"name": task, "hash": base[task]["protocol_hash"]}
        told = {"protocol": protocol, "tasks": {task: base[task]}, "variants": variants, "seconds": seconds}
        case = case_of_floor(subject, protocol["hash"])
        records.append(make_record(case, facts | told | {"floor": {task: floor}}))
    return records


def _cells(base: dict[str, Any], found: dict[str, Any]) -> dict[str, Cell]:
    """Task -> its cell; a group has none of its own, as its tasks have the same items."""
    return {cell.metric: cell for cell in task_cells(base, found, []) if cell.is_tested}


def _distance(cell: Cell) -> dict[str, Any]:
    """Of answers that are right or wrong the share that changed: had all gone one way, the accuracy would by that."""
    change = described(cell.estimate)
    if cell.flips is None:
        return {"change": change, "flips": None, "floor": farthest(cell.estimate, NEUTRAL[cell.kind])}
    lost, gained, num_items = cell.flips
    flips = {"lost": lost, "gained": gained, "num_items": num_items}
    return {"change": change, "flips": flips, "floor": (lost + gained) / num_items}
