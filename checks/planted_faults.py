"""Plant the faults of checks/faults in a copy of the project and report which test run finds each.

python -m checks.planted_faults                     plant all faults and print a Markdown table
python -m checks.planted_faults --only ID [ID ...]  plant some of them
python -m checks.planted_faults --near              run only the tests next to each fault: a quick look
python -m checks.planted_faults --check             check only that every fault can be planted

Exit status 1 if `make test` finds fewer than 95 % or `make test-all` not all; 2 for a fault that cannot be planted
and for tests that fail without any.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from checks.planting.fault import Fault, UnusableFault, load_faults
from checks.planting.search import Runs, Search, UncleanTree, Verdict
from checks.planting.table import HEADING, row, shares, summary
from checks.planting.tree import copied

ROOT = Path(__file__).resolve().parent.parent
FAULTS = "checks/faults"
ALL_TESTS = ("tests",)
LEAST_IN_TEST, LEAST_IN_ALL = 0.95, 1.0


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, runs: Runs | None = None) -> int:
    """Check or search; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="ID", help="Plant these faults alone.")
    parser.add_argument("--check", action="store_true", help="Report faults that cannot be planted, and run no test.")
    parser.add_argument("--near", action="store_true", help="Run only the tests that are next to each fault.")
    options = parser.parse_args(arguments)
    try:
        faults = _chosen(load_faults(root / FAULTS), options.only)
        for fault in faults:
            fault.check(root)
        if options.check:
            print(f"{len(faults)} faults can be planted")
            return 0
        verdicts = search(root, faults, runs or Runs(), () if options.near else ALL_TESTS)
    except (UnusableFault, UncleanTree) as error:
        print(error, file=sys.stderr)
        return 2
    print(summary(verdicts))
    if any(verdict.problem for verdict in verdicts):
        return 2
    in_test, in_all = shares(verdicts)
    return 0 if in_test >= LEAST_IN_TEST and in_all >= LEAST_IN_ALL else 1


def search(root: Path, faults: Sequence[Fault], runs: Runs, everywhere: Sequence[str] = ALL_TESTS) -> list[Verdict]:
    """A verdict per fault; the unplanted tree passes first, and rows are printed as they come."""
    with copied(root) as tree:
        looking = Search(tree, runs, everywhere)
        compiled = [fault for fault in faults if fault.is_compiled]
        if compiled:
            tree.build()
        looking.require_clean(
            "test", tuple(sorted({name for fault in faults for name in fault.nearest_tests(tree.root)}))
        )
        print(HEADING, flush=True)
        verdicts = []
        for fault in (*(fault for fault in faults if not fault.is_compiled), *compiled):
            verdicts.append(looking.verdict(fault))
            print(row(verdicts[-1]), flush=True)
        confirmed = looking.confirmed(verdicts)
        for before, after in zip(verdicts, confirmed, strict=True):
            if before != after:
                print(row(after), flush=True)
    return confirmed


def _chosen(faults: Sequence[Fault], only: Sequence[str] | None) -> list[Fault]:
    unknown = set(only or ()) - {fault.id for fault in faults}
    if unknown:
        raise UnusableFault(f"no fault is called {', '.join(sorted(unknown))}")
    return [fault for fault in faults if only is None or fault.id in only]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the copy is removed
    sys.exit(main())
