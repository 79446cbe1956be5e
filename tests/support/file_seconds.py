"""How long the files of a test run took, as a table: set-up and tear-down included, over all processes of the run."""

from collections import Counter
from collections.abc import Iterable

SHOWN = 20  # files: all that matter


def file_seconds(reports: Iterable) -> Counter[str]:
    """Seconds per file among pytest's reports."""
    seconds: Counter[str] = Counter()
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += getattr(
            report, "duration", 0.0
        )  # absent if a file was only collected
    return seconds


def seconds_table(seconds: Counter[str]) -> list[str]:
    """Lines of the slowest files, the slowest first, and one for all others."""
    lines = [f"{count:7.1f}  {name}" for name, count in seconds.most_common(SHOWN)]
    others = seconds.most_common()[SHOWN:]
    if others:
        lines.append(f"{sum(count for _, count in others):7.1f}  {len(others)} other files")
    return lines
