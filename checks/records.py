"""Rows of results/ that no longer count: `python -m checks.records`; `--remove` takes them out of their files.

A row is stale if
- a tree with changes measured it, so no commit names its code,
- a later row of its file has the same case on the same machine, or
- it is a further launch of a row that is gone, or that other code measured.
Runs of the gate are a series, of which all rows stay.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qbench.measure.host.commit import ROOT
from qbench.measure.records.kinds import AGAIN, GATE
from qbench.measure.records.line_file import read_lines
from qbench.measure.records.record import Record, parse_record
from quant.atomic import atomic_file

FOLDER = "results"


def stale_lines(lines: Sequence[bytes]) -> dict[int, str]:
    """Number of each stale line, from 0, and why it is one. Lines that are no records are left alone."""
    records = {number: record for number, line in enumerate(lines) if (record := parse_record(line)) is not None}
    stale = {number: "measured by a tree with changes" for number, record in records.items() if record.dirty}
    newest: dict[str, int] = {}
    for number, record in records.items():
        if number in stale or record.case.kind == GATE:
            continue
        case = _case(record)
        before = newest.get(case)
        if before is not None:
            older, later = sorted((before, number), key=lambda one: records[one].time)
            stale[older] = f"measured again at {records[later].time}"
            newest[case] = later
        else:
            newest[case] = number
    firsts = {(records[number].key, records[number].code) for number in records if number not in stale}
    for number, record in records.items():
        of = getattr(record.case, "of", None)
        if record.case.kind == AGAIN and number not in stale and (of, record.code) not in firsts:
            stale[number] = "a launch of a row that is gone"
    return dict(sorted(stale.items()))


def _case(record: Record) -> str:
    """Case and machine; a key that a case has as null counts as absent."""
    return json.dumps([_without_none(record.case.to_json()), record.machine.id], sort_keys=True)


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return value


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Report or remove; the exit status: 1 if stale rows were found and left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--remove", action="store_true", help="Write each file without its stale rows.")
    options = parser.parse_args(arguments)
    total = 0
    for path in sorted((root / FOLDER).rglob("*.jsonl")):
        lines = read_lines(path)
        stale = stale_lines(lines)
        total += len(stale)
        if not stale:
            continue
        name = path.relative_to(root)
        if options.remove:
            kept = [line for number, line in enumerate(lines) if number not in stale and line.strip()]
            with atomic_file(path) as temporary:
                temporary.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in kept))
            print(f"{name}: {len(stale)} rows removed, {len(kept)} left")
        else:
            number, why = next(iter(stale.items()))
            print(f"{name}:{number + 1}: {why}; {len(stale)} stale rows in this file", file=sys.stderr)
    if total and not options.remove:
        print("records: remove stale rows by python -m checks.records --remove", file=sys.stderr)
    return int(total > 0 and not options.remove)


if __name__ == "__main__":
    sys.exit(main())
