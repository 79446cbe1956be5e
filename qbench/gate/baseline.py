"""A baseline as a file: the suite's rows, and next to each the launches that decide on its peak of memory."""

from dataclasses import dataclass, replace
from pathlib import Path

from qbench.comparison.rows import kept_floors
from qbench.gate.floors import key_of, measure
from qbench.gate.measure import failures, measure_suite, this_tree
from qbench.gate.pairing import Pair, names_of
from qbench.gate.timed import launch_alone, subject_of
from qbench.measure.host.machine import machine
from qbench.measure.records.record import append_record
from qbench.measure.records.record_files import kept_file
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Written:
    file: Path
    num_rows: int


def write_baseline(suite: Path, target: Path, folder: Path) -> Written:
    """Measure the suite with this tree and append its rows to `target`, a file or a folder of one file per machine.

    raises   InputError where a case fails, since a gate would compare nothing with it
    """
    tree = this_tree(folder)
    rows = measure_suite(tree, suite)
    for name, error in failures(rows).items():
        raise InputError(f"{name} failed: {error}")
    names = names_of([row.model_case for row in rows])
    pairs = [Pair(name, row, row) for name, row in zip(names, rows, strict=True)]
    subjects = [subject_of(pair, (tree,), suite) for pair in pairs if pair.now.model_case.speed]
    launches = launch_alone(subjects)
    file = kept_file(target, machine().id)
    known = kept_floors([str(file)]) if file.exists() else {}
    for key, row in {key_of(row): row for row in rows}.items():
        if key is not None and key not in known:
            for floor in measure(row):
                append_record(file, floor)
    for pair in pairs:
        metrics = replace(pair.now.figures, launches=launches.get(pair.name))
        append_record(file, replace(pair.now, metrics=metrics))
    return Written(file, len(pairs))
