"""Parts that a test run did not exercise on this machine, and why, as one table."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class NotRun:
    """One test that did not run: the folder of its file below tests/, and the reason."""

    folder: str
    reason: str


def not_run(reports: Iterable) -> list[NotRun]:
    """The skipped tests among pytest's reports. A skip of a whole file counts as one."""
    return [NotRun(_folder(report.nodeid), _reason(report.longrepr)) for report in reports]


def table(skipped: Iterable[NotRun]) -> list[str]:
    """Lines: number of tests, reason, folders; the most frequent reason first."""
    counts, folders = Counter(), {}
    for test in skipped:
        counts[test.reason] += 1
        folders.setdefault(test.reason, Counter())[test.folder] += 1
    lines = []
    for reason, count in sorted(counts.items(), key=lambda row: (-row[1], row[0])):
        where = ", ".join(name for name, _ in folders[reason].most_common())
        lines.append(f"{count:6}  {reason}  ({where})")
    return lines


def _folder(node_id: str) -> str:
    """tests/qbench/kernels/test_x.py::test_y -> qbench/kernels"""
    parts = PurePosixPath(node_id.partition("::")[0]).parts
    return "/".join(parts[1:-1]) or "tests"


def _reason(longrepr: object) -> str:
    """pytest keeps a skip as (path, line, 'Skipped: reason')."""
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())
