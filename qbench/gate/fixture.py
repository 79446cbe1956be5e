"""`qbench_gate`: the gates as calls from a test, with limits of its own, a baseline's rows, or both."""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qbench.gate.base_commit import Tree
from qbench.gate.check import Check, judge
from qbench.gate.comment import moved
from qbench.gate.fixture_rows import FixtureRows, case_of_test, test_of
from qbench.gate.launches import ROUNDS, Subject, launch_all, peaks_of
from qbench.gate.memory import OTHER_HOURS, peak_checks, stored_check
from qbench.gate.pairing import Pair
from qbench.gate.quality import quality_checks
from qbench.gate.speed import typical
from qbench.gate.timed import ALONE
from qbench.measure.launch import PEAK, Launch
from qbench.measure.metrics import Metrics
from qbench.measure.records.record import Record, make_record
from qbench.quality.evaluate import evaluate
from qbench.run.options import RunOptions
from qbench.run.work import QualityWork, SpeedWork
from qbench.sources import open_source
from quant.present import present
from quant.sizes import size_summary


@dataclass(frozen=True, slots=True)
class QbenchGate:
    """One test's gates. Each call measures, keeps or compares; AssertionError names each surely worse figure.

    A limit is passed unless the figure exceeds it for sure; if that is open, the test goes on with a warning.

    baseline   file or folder of rows that an earlier run saved; None: limits alone
    save       append to it instead of comparing
    """

    baseline: Path | None = None
    save: bool = False

    def quality(
        self,
        model: str | Path,
        *,
        reference: str | None = None,
        text: str | Path | None = None,
        windows: int | None = None,
        max_kld: float | None = None,
        max_perplexity: float | None = None,
        threads: int | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Perplexity, and with a reference the mean KLD (nats). returns the object that `qbench eval --json` prints

        name   in the baseline, for a model whose path is another in each run [the file's name]
        """
        text = None if text is None else str(text)
        scored = QualityWork(text, windows, reference=reference)
        found = evaluate(str(model), scored, RunOptions(threads=threads))
        quality = present(found.quality)
        within("perplexity", quality.perplexity, quality.perplexity_interval, max_perplexity)
        if max_kld is not None:
            within("mean KLD", quality.mean_kld, quality.kld_interval, max_kld)
        case = case_of_test("quality", model, name, quality=QualityWork(text, windows), threads=threads)
        self._compare(make_record(case, found), lambda rows, pair: quality_checks(pair, rows.floors(pair)))
        return found.to_json()

    def memory(
        self,
        model: str | Path,
        *,
        max_weight_bytes: int | None = None,
        max_peak_rss_bytes: int | None = None,
        context: int = 512,
        threads: int | None = None,
        name: str | None = None,
    ) -> dict[str, int | list[int]]:
        """Bytes of the weights as stored, and the peaks of fresh processes that prefill `context` tokens."""
        size = size_summary(open_source(str(model)).tensors).size_bytes
        launches = alone(model, SpeedWork(pp=context, tg=0, repetitions=1), threads)
        peaks = peaks_of(launches, 0)
        require(max_weight_bytes is None or size <= max_weight_bytes, f"{size} bytes of weights, over the limit")
        over = max_peak_rss_bytes is not None and min(peaks) > max_peak_rss_bytes
        require(not over, f"peak RSS of {min(peaks)} bytes at least, over the limit of {max_peak_rss_bytes}")
        found = replace(Metrics.from_json({"size_bytes": size}), launches=launches)
        case = case_of_test("memory", model, name, context=context, threads=threads)
        self._compare(make_record(case, found), lambda rows, pair: memory_checks(pair))
        return {"size_bytes": size, PEAK: peaks}

    def speed(
        self,
        model: str | Path,
        *,
        pp: int = 512,
        tg: int = 64,
        min_pp_tok_s: float | None = None,
        min_tg_tok_s: float | None = None,
        threads: int = 1,
    ) -> dict[str, float]:
        """Tokens per second, median of fresh processes; below a limit for sure if each of them is.

        No baseline is read: measurements of another hour cannot decide on a few per cent. `qbench gate` against a
        commit does.
        """
        launches = alone(model, SpeedWork(pp=pp, tg=tg, repetitions=ROUNDS), threads)
        found = {}
        for phase, count, limit in (("pp", pp, min_pp_tok_s), ("tg", tg, min_tg_tok_s)):
            if count:
                rates = [count / typical([launch.seconds[phase][0]]) for launch in launches]
                require(limit is None or max(rates) >= limit, f"{phase}: {max(rates):.0f} tok/s at most, below {limit}")
                found[f"{phase}_tok_s"] = sorted(rates)[len(rates) // 2]
        return found

    def _compare(self, record: Record, checks_of: Callable[[FixtureRows, Pair], list[Check]]) -> None:
        if self.baseline is None:
            return
        rows = FixtureRows(self.baseline)
        if self.save:
            return rows.save(record)
        judged = judge(checks_of(rows, Pair(test_of(record).name, rows.like(record), record)))
        worse = [check for check in judged if check.verdict == "worse"]
        require(not worse, moved(worse))


def alone(model: str | Path, case: SpeedWork, threads: int | None) -> list[Launch]:
    """Fresh processes of this interpreter."""
    tree = Tree("this tree", Path(sys.executable), Path())
    subject = Subject("", ((tree, Path(model)),), case, RunOptions(threads=threads or 1))
    return launch_all([[subject]], lambda launches: True, least=ALONE, budget_s=0)[""]


def memory_checks(pair: Pair) -> list[Check]:
    sides = [present(row.figures.launches) for row in (pair.baseline, pair.now)]
    peaks = {pair.name: (peaks_of(sides[0], 0), peaks_of(sides[1], 0))}
    return [stored_check(pair), *peak_checks(peaks, OTHER_HOURS)]


def within(what: str, value: float | None, interval: Sequence[float] | None, limit: float | None) -> None:
    """raises AssertionError for a value that is over its limit for sure: its 95 % interval is, or it is not finite"""
    if limit is None:
        return
    if value is None:
        raise AssertionError(f"{what} is not finite, the limit {limit:.6g}")
    low, high = interval or (value, value)
    shown = f"{what} is {value:.6g} [{low:.6g}, {high:.6g}], the limit {limit:.6g}"
    require(low <= limit, shown)
    if value > limit:
        warnings.warn(f"{shown}: over it, but within its interval", stacklevel=3)


def require(passed: bool, message: str) -> None:
    if not passed:
        raise AssertionError(message)
