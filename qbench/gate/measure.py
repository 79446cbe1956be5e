"""The suite measured by one tree, with that tree's own code from quantizer to speed measurement."""

import subprocess
import sys
from pathlib import Path

from qbench.gate.base_commit import Tree
from qbench.gate.pairing import names_of
from qbench.gate.suite_rows import require_all, rows_of, suite_cases
from qbench.measure.host.commit import code_version
from qbench.measure.host.machine import machine
from qbench.measure.records.record import Record, read_records
from qbench.words.written import real_path
from quant.errors import InputError
from quant.present import present


def this_tree(folder: Path) -> Tree:
    return Tree("this tree", Path(sys.executable), folder, code_version().code)


def measure_suite(tree: Tree, suite: Path) -> list[Record]:
    """The row of each case by `qbench sweep SUITE`; rows of the same code in its folder are not measured again.

    Messages of the sweep go to stderr as they come.
    raises   InputError if the tree cannot run the suite at all, and if this tree lacks a case
    """
    folder = tree.folder / suite.stem
    command = [str(tree.python), "-m", "qbench.cli.main", "sweep", str(real_path(suite)), "-o", str(folder), "--json"]
    status = subprocess.run(command, stdout=subprocess.DEVNULL, env=tree.env).returncode
    records = folder / "records.jsonl"
    if status not in (0, 1) or not records.exists():
        raise InputError(f"{tree.name} cannot sweep {suite}: it ended with status {status}, its own line is above")
    here = machine().id
    rows = [row for row in read_records(records, {here}) if row.machine.id == here and tree.code in (None, row.code)]
    cases = suite_cases(suite)
    if tree.code is not None:
        require_all(cases, rows, tree.name)
    return rows_of(cases, rows)


def artifact_of(tree: Tree, suite: Path, record: Record) -> Path:
    return tree.folder / suite.stem / present(present(record.figures.facts).artifact)


def measured(rows: list[Record]) -> list[Record]:
    return [row for row in rows if row.is_ok]


def failures(rows: list[Record]) -> dict[str, str]:
    """Name of the case -> why it has no figures."""
    names = names_of([row.model_case for row in rows])
    return {name: row.error or "" for name, row in zip(names, rows, strict=True) if not row.is_ok}
