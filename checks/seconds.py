"""Seconds of each test file: `python -m checks.seconds` compares the last `make test` with the kept run.

A report without a verdict, since machines differ: files are compared by their share of the whole. `--save` keeps the
last run in results/ci, with its commit and processor.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LAST = Path("build/test_seconds.json")  # of the last `make test`
KEPT = Path("results/ci/test_seconds.json")
SHOWN = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="Keep the last run.")
    asked = parser.parse_args()
    if not LAST.exists():
        print(f"test seconds: no {LAST}; `make test` writes it")
        return 0
    last = json.loads(LAST.read_text())
    if asked.save:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        KEPT.write_text(json.dumps({"commit": commit, **last}, indent=1) + "\n")
        print(f"test seconds: kept in {KEPT}")
        return 0
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else None
    print("\n".join(compared(last, kept)) if kept else "test seconds: no kept run; --save keeps the last one")
    return 0


def compared(last: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Lines: the sums, and the files whose share of the sum has grown most."""
    now, before = last["seconds"], kept["seconds"]
    total, kept_total = (sum(seconds.values()) or 1.0 for seconds in (now, before))
    lines = [f"test seconds: {total:.0f} in {len(now)} files; kept run: {kept_total:.0f} in {len(before)} files"]
    grown = {name: count / total - before.get(name, 0.0) / kept_total for name, count in now.items()}
    for name in sorted(grown, key=lambda name: -grown[name])[:SHOWN]:
        old = f"{before[name]:.1f}" if name in before else "new"
        lines.append(f"{now[name]:7.1f} s, kept {old:>6}  {name}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
