"""Which run finds a fault: the likeliest tests first, then all, and the first failure ends the search."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from checks.planting.fault import Fault, UnusableFault
from checks.planting.tree import Tree, fault_in

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)
# Statuses of pytest: 0 all passed, 1 some failed, 5 nothing was collected; others: it could not run.
PASSED, FOUND, EMPTY = 0, 1, 5
HUNG = "a test that did not end"


class UncleanTree(Exception):
    """Tests fail without any fault, so failures with one would say nothing."""


@dataclass(frozen=True, slots=True)
class Runs:
    """How the two runs select tests, as options of pytest, and how long a run may take.

    test     those of the shorter run
    rest     those that only the longer run has
    """

    test: tuple[str, ...] = ("-m", "not exhaustive")
    rest: tuple[str, ...] = ("-m", "exhaustive")
    timeout_s: float = 3600.0
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """found_by: "test" (then test-all finds it too), "test-all", "" for neither; seen_by: the test that failed"""

    fault: Fault
    found_by: str
    seen_by: str
    seconds: float
    problem: str = ""


class Search:
    """Searches of one tree. `everywhere`: folders that hold all tests; empty: run only tests next to a fault."""

    def __init__(self, tree: Tree, runs: Runs, everywhere: Sequence[str] = ("tests",)) -> None:
        self.tree, self.runs, self.everywhere = tree, runs, tuple(everywhere)
        self._clean: set[tuple[str, ...]] = set()

    def verdict(self, fault: Fault) -> Verdict:
        """Plants the fault and looks for a test that fails."""
        began = time.monotonic()
        try:
            found_by, seen_by = self._find(fault)
        except UnusableFault as error:
            return Verdict(fault, "", "", time.monotonic() - began, str(error))
        return Verdict(fault, found_by, seen_by, time.monotonic() - began)

    def _find(self, fault: Fault) -> tuple[str, str]:
        near = (fault.mirror(self.tree.root),)
        likely = [("test", tuple(fault.nearest_tests(self.tree.root))), ("test", near)]
        wide = [("test-all", near)]
        if self.everywhere:
            wide = [("test", self.everywhere), *wide, ("test-all", self.everywhere)]
        return self._first_of(fault, likely) or self._first_of(fault, wide, check=True) or ("", "")

    def _first_of(
        self, fault: Fault, stages: Sequence[tuple[str, tuple[str, ...]]], check: bool = False
    ) -> tuple[str, str] | None:
        """The first run that fails with the fault, and its test. check: runs must pass without the fault before"""
        if check:
            for found_by, paths in stages:
                self.require_clean(found_by, paths)
        with fault_in(self.tree, fault):
            for found_by, paths in dict.fromkeys(stages):
                if seen_by := self.first_failure(found_by, paths):
                    return found_by, seen_by
        return None

    def require_clean(self, found_by: str, paths: tuple[str, ...]) -> None:
        """The same tests pass without any fault. raises UncleanTree if they do not"""
        if (found_by, *paths) in self._clean:
            return
        failed = self.first_failure(found_by, paths)
        if failed:
            raise UncleanTree(f"without any fault {failed} fails; make the tests pass first")
        self._clean.add((found_by, *paths))

    def first_failure(self, found_by: str, paths: Sequence[str]) -> str:
        """The first test that fails, "" if all pass. raises UnusableFault if they cannot be run"""
        selection = self.runs.test if found_by == "test" else self.runs.rest
        return self._run((*selection, "-x", *paths))

    def confirmed(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """The verdicts; one whose test fails without the fault too gets a problem instead."""
        tests = sorted({one.seen_by for one in verdicts if one.seen_by and one.seen_by != HUNG})
        if not tests or not self._run(tests):
            return list(verdicts)
        flaky = {test for test in tests if self._run([test])}
        return [
            replace(one, found_by="", problem="its test fails without the fault") if one.seen_by in flaky else one
            for one in verdicts
        ]

    def _run(self, arguments: Sequence[str]) -> str:
        quiet = ["-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", *self.runs.options]
        done = self.tree.run([self.tree.python, "-m", "pytest", *quiet, *arguments], self.runs.timeout_s)
        if done.status is None:
            return HUNG
        if done.status in (PASSED, EMPTY):
            return ""
        failed = FAILED.search(done.output)
        if done.status == FOUND and failed:
            return failed[1]
        if done.status == FOUND or done.status < 0 or done.status > EMPTY:
            return HUNG  # pytest itself was ended, by its own time limit or by a crash of the code that it tests
        raise UnusableFault("the tests cannot be collected: " + " ".join(done.output.splitlines()[-3:]))
