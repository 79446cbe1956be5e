"""Count eleven habits of hard English and hold each count to a budget that may only fall.

python -m checks.prose                 exit 1 if a pattern exceeds its budget, and print the places
python -m checks.prose --lower         write the counts that are below their budget as the new budget
python -m checks.prose --list PATTERN  print every place of one pattern
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checks.patterns import HABITS, PATTERNS, TEST_NAME, without_code
from checks.texts import names_of_tests, prose_files, texts_of

ROOT = Path(__file__).resolve().parent.parent
BUDGET = "checks/prose_budget.json"
SHOWN = 40  # places per pattern: a screen
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Place:
    """One match: its pattern, file, line (from 1), and the text around it on one line."""

    pattern: str
    path: str
    line: int
    excerpt: str


def find_places(root: Path, names: Sequence[str]) -> list[Place]:
    """Every match of every pattern in these files."""
    return [place for name in names for place in places_in(name, (root / name).read_text("utf-8"))]


def places_in(path: str, content: str) -> list[Place]:
    """Every match in one file: of its texts, by pattern, then by position; then names of tests."""
    places = []
    for piece in texts_of(path, content):
        text = without_code(piece.text)
        for pattern, expression in PATTERNS.items():
            for match in expression.finditer(text):
                excerpt = " ".join(piece.text[max(0, match.start() - 40) : match.end() + 40].split())
                places.append(Place(pattern, path, piece.line + text.count("\n", 0, match.start()), excerpt))
    names = names_of_tests(path, content)
    return places + [Place("test-name", path, name.line, name.text) for name in names if TEST_NAME.search(name.text)]


def changed_lines(root: Path, since: str) -> set[tuple[str, int]]:
    """(file, line) of every line that differs from the revision `since`; empty if git does not know the revision."""
    command = ["git", "-C", str(root), "diff", "--unified=0", "--no-color", "--no-ext-diff", since]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    lines, path = set(), ""
    for line in done.stdout.splitlines() if done.returncode == 0 else []:
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/")
        elif match := HUNK.match(line):
            first, count = int(match[1]), int(match[2] or 1)
            lines |= {(path, number) for number in range(first, first + count)}
    return lines


def budget_at(root: Path, revision: str) -> dict[str, int]:
    """The budget in a revision; empty if the revision or the file is missing there."""
    command = ["git", "-C", str(root), "show", f"{revision}:{BUDGET}"]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def count(places: Sequence[Place]) -> dict[str, int]:
    """Matches per pattern, zeros included."""
    return {pattern: sum(place.pattern == pattern for place in places) for pattern in HABITS}


def exceeded(
    counts: dict[str, int], budget: dict[str, int], places: Sequence[Place], changed: set[tuple[str, int]]
) -> list[str]:
    """Lines that report each pattern above its budget, with the places on changed lines, or else all places."""
    report = []
    for pattern, number in counts.items():
        if number <= budget[pattern]:
            continue
        report.append(f"{pattern}: {number} places, budget {budget[pattern]}")
        all_places = [place for place in places if place.pattern == pattern]
        shown = [place for place in all_places if (place.path, place.line) in changed] or all_places
        report += [f"  {place.path}:{place.line}: {place.excerpt}" for place in shown[:SHOWN]]
        if len(shown) > SHOWN:
            report.append(f"  ... and {len(shown) - SHOWN} more: python -m checks.prose --list {pattern}")
    return report


def raised(budget: dict[str, int], before: dict[str, int]) -> list[str]:
    """Lines that name each budget above the earlier one."""
    return [
        f"{pattern}: the budget was raised from {before[pattern]} to {number}; it may only fall"
        for pattern, number in budget.items()
        if number > before.get(pattern, number)
    ]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Check, list or lower; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--lower", action="store_true", help="Write counts below their budget as the new budget.")
    action.add_argument("--list", choices=HABITS, metavar="PATTERN", help=f"Print every place: {', '.join(HABITS)}.")
    parser.add_argument("--since", default="HEAD", help="Revision whose budget may not be exceeded. Default: HEAD.")
    options = parser.parse_args(arguments)

    places = find_places(root, prose_files(root))
    if options.list:
        shown = [place for place in places if place.pattern == options.list]
        print(*(f"{place.path}:{place.line}: {place.excerpt}" for place in shown), sep="\n")
        return 0

    counts, budget = count(places), json.loads((root / BUDGET).read_text())
    if sorted(budget) != sorted(HABITS):
        print(f"{BUDGET}: got {sorted(budget)}, expected {sorted(HABITS)}", file=sys.stderr)
        return 1
    if options.lower:
        budget = {pattern: min(budget[pattern], number) for pattern, number in counts.items()}
        (root / BUDGET).write_text(json.dumps(budget, indent=2) + "\n")

    red = exceeded(counts, budget, places, changed_lines(root, options.since))
    red += raised(budget, budget_at(root, options.since))
    print(*red, sep="\n", end="\n" if red else "")
    low = [f"{pattern} {number} < {budget[pattern]}" for pattern, number in counts.items() if number < budget[pattern]]
    if low:
        print(f"prose: below budget ({', '.join(low)}); lower it: python -m checks.prose --lower")
    if not red:
        print("prose: " + ", ".join(f"{pattern} {number}/{budget[pattern]}" for pattern, number in counts.items()))
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
