"""`run_gate`: a suite measured here and in the baseline, compared, and judged as a whole, on several ranks too."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qbench.comparison.rows import of_model
from qbench.gate.base_commit import Tree, base_tree, cache_folder
from qbench.gate.base_suite import known_suite
from qbench.gate.check import Check, judge, sees_slowdown
from qbench.gate.floors import floors_of
from qbench.gate.launches import Launches, check_worker
from qbench.gate.measure import failures, measure_suite, measured, this_tree
from qbench.gate.memory import exact_checks
from qbench.gate.options import GATES, GateOptions
from qbench.gate.pairing import Pair, lacking, pair_cases, read_baseline
from qbench.gate.quality import quality_checks
from qbench.gate.result import GateAbout, GateResult
from qbench.gate.suite_rows import suite_cases
from qbench.gate.timed import Say, alone, in_turn
from qbench.measure.host.commit import code_version
from qbench.measure.host.machine import machine
from qbench.measure.records.kept_ranks import RED, RankDistance
from qbench.measure.records.record import Record, make_record
from qbench.sweeps.suite.load_suite import load_suite
from qbench.words.written import real_path

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
DIVISIONS = "tp,gather,pp,ep,sp"  # those that are illegal are refused, and are no failure


def run_gate(options: GateOptions, say: Say = lambda line: None) -> GateResult:
    """raises InputError for a baseline that this run cannot be compared with"""
    return _Gate(options, say).run()


class _Gate:
    """One run: the compared cases, and those left out on the way."""

    def __init__(self, options: GateOptions, say: Say) -> None:
        self.options, self.say, self.start = options, say, time.monotonic()
        self.this = this_tree(options.folder)
        path = Path(options.baseline)
        self.where = str(path) if path.exists() else f"commit {options.baseline}"
        self.base = None if path.exists() else base_tree(options.baseline, cache_folder(), say)
        if self.base is not None:
            check_worker(self.base)
        self.not_checked = [f"{gate}, as asked" for gate in GATES if gate in options.skip]
        self.failed_before: dict[str, str] = {}  # in the base commit: name of a case -> why

    def run(self) -> GateResult:
        past = self.baseline_rows()
        rows = measure_suite(self.this, self.options.suite)
        pairs = self.pairs(measured(rows), past)
        self.say(f"comparing {len(pairs)} cases with {self.where}")
        self.not_checked += list(map(self.why_unpaired, lacking(measured(rows), past)))
        checks = self.still_checks(pairs)
        timed, launches = self.timed_checks(pairs, checks)
        judged = judge([*checks, *timed])
        failed = {name: error for name, error in failures(rows).items() if name not in self.failed_before}
        ranks = self.options.ranks
        apart = apart_on_ranks(self.options.suite, ranks, self.say) if ranks > 1 else {}
        return GateResult(judged, self.about(pairs), failed, self.not_checked, launches, apart)

    def baseline_rows(self) -> list[Record]:
        """The baseline's, once it is sure that it holds every case of the suite, of this machine."""
        if self.base is not None:
            rows = measure_suite(self.base, known_suite(self.base, self.options.suite))
            self.failed_before = failures(rows)
            return measured(rows)
        rows = read_baseline(Path(self.options.baseline))
        now = [replace(make_record(case, None), machine=machine()) for case in suite_cases(self.options.suite)]
        self.pairs(now, rows)
        return rows

    def pairs(self, rows: Sequence[Record], past: Sequence[Record]) -> list[Pair]:
        any_machine, may_lack = self.options.any_machine, self.base is not None
        return pair_cases(rows, past, self.where, any_machine=any_machine, may_lack=may_lack)

    def why_unpaired(self, name: str) -> str:
        error = self.failed_before.get(name)
        return f"{name}: new, {self.where} has none" if error is None else f"{name}: it failed in {self.where}: {error}"

    def still_checks(self, pairs: Sequence[Pair]) -> list[Check]:
        """Checks of the sweeps' rows: quality, and the bytes that follow from formats and shapes."""
        quality = []
        if "quality" not in self.options.skip:
            paths = [] if self.base is not None else [Path(self.options.baseline)]
            floors = floors_of(pairs, paths, self.options.folder)
            quality = [check for pair in pairs for check in quality_checks(pair, of_model(floors, pair.now))]
        memory = [check for pair in pairs if pair.now.model_case.speed for check in exact_checks(pair)]
        return self.wanted([*quality, *memory])

    def timed_checks(self, pairs: Sequence[Pair], others: Sequence[Check]) -> tuple[list[Check], Launches]:
        """Checks of launches: the peak of memory, and speed."""
        pairs = [pair for pair in pairs if pair.now.model_case.speed]
        if not pairs or {"memory", "speed"} <= self.options.skip:
            return [], {}
        checks, launches = self.beside_records(pairs) if self.base is None else self.in_turn(pairs, others, self.base)
        return self.wanted(checks), launches

    def in_turn(self, pairs: Sequence[Pair], others: Sequence[Check], base: Tree) -> tuple[list[Check], Launches]:
        """With the base commit; where speed is no gate, no longer than the peaks need."""
        is_gate = "speed" not in self.options.skip | self.options.report
        options = self.options if is_gate else replace(self.options, budget_s=0.0)
        self.say(f"launching this tree and {self.where} in turn, for peaks of memory and speed")
        checks, launches = in_turn(pairs, (base, self.this), options, others, self.say)
        sees = sees_slowdown(judge([*others, *checks]))
        if is_gate and sees > options.see:
            self.not_checked.append(f"slowdowns below {100 * sees:.1f} %, for which the budget was too short")
        return checks, launches

    def beside_records(self, pairs: Sequence[Pair]) -> tuple[list[Check], Launches]:
        """This tree alone: peaks, where the records have some of their own, and speed are a report."""
        why_not = next(filter(None, map(why_not_beside, pairs)), None)
        if why_not:
            held = ", bytes of weights held" if any(pair.is_elsewhere for pair in pairs) else ""
            self.not_checked.append(f"speed, peak RSS{held}: {self.where} {why_not}")
            return [], {}
        self.say("launching every case again, for its peak of memory and its speed")
        self.not_checked.append(
            "speed and peak RSS are a report: only a base commit is measured in turn with this tree"
        )
        return alone(pairs, self.this, self.options.suite)

    def wanted(self, checks: Sequence[Check]) -> list[Check]:
        report, skip = self.options.report, self.options.skip
        return [
            replace(check, is_gate=check.is_gate and check.gate not in report)
            for check in checks
            if check.gate not in skip
        ]

    def about(self, pairs: Sequence[Pair]) -> GateAbout:
        base = pairs[0].baseline if pairs else None
        code = code_version()
        return GateAbout(
            suite=str(self.options.suite),
            baseline=self.where,
            baseline_commit=(base.commit, base.dirty) if base else (None, None),
            commit=(code.commit, code.dirty),
            machine=machine().id,
            seconds=time.monotonic() - self.start,
        )


def why_not_beside(pair: Pair) -> str | None:
    """Reason why processes of now cannot be compared with the baseline's; None if they can."""
    if pair.is_elsewhere:
        return f"is of another machine: {pair.elsewhere}"
    before, now = (row.versions or {} for row in (pair.baseline, pair.now))
    others = [name for name in now if name != "qbench"]  # its own version is under test
    unlike = [f"{name} {before.get(name)}, not {now[name]}" for name in others if before.get(name) != now[name]]
    if unlike:
        return "ran with " + ", ".join(unlike)
    if pair.baseline.figures.launches is None:
        return "has no launches; `qbench gate --save` keeps some"
    return None


def apart_on_ranks(suite: Path, num_ranks: int, say: Say) -> dict[str, str]:
    """`GateResult.apart`; `torchrun` starts the ranks of `qbench compare`, with one window of text."""
    loaded = load_suite(real_path(suite))
    found: dict[str, str] = {}
    for model in loaded.axes["model"]:
        say(f"comparing {model} on {num_ranks} ranks with one rank")
        command = [
            "compare",
            model,
            "--divisions",
            DIVISIONS,
            "--recipes",
            ",".join(loaded.axes["recipe"]),
            "--windows",
            "1",
        ]
        done = subprocess.run(
            [*TORCHRUN, str(num_ranks), "-m", "qbench", *command, "--json"],
            capture_output=True,
            text=True,
            check=False,
            encoding="utf-8",
        )
        found |= dict(red_rows(done.stdout))
        if done.returncode and not found:
            found[f"{model} on {num_ranks} ranks"] = error_of(done.stderr)
    return found


def red_rows(printed: str) -> Iterator[tuple[str, str]]:
    for line in printed.splitlines():
        row: Mapping = json.loads(line)
        if row["verdict"] in RED:
            one = RankDistance.from_json(row)
            delta, floor = one.found.delta, one.found.floor
            klds = f": mean KLD {delta.mean_kld:.2e}, floor {floor.mean_kld:.2e}" if delta and floor else ""
            yield f"{one.model} {one.recipe} on ranks ({one.layout})", f"{one.found.verdict}{klds}"


def error_of(printed: str) -> str:
    """The line of rank 0 among those of torchrun"""
    lines = [line for line in printed.splitlines() if line.startswith("qbench: ")]
    return (lines or printed.splitlines() or ["it printed nothing"])[-1].removeprefix("qbench: ")
