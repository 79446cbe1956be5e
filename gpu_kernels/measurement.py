"""Checks every kernel on this machine's GPU, then times it next to its peers, inside a budget of time.

A captured decode step of a whole model comes first: it is no op of the table, and its peer is the same step, eager.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from gpu_kernels.decode import timed_step
from gpu_kernels.launch import compute_capability
from gpu_kernels.proof import machine_peaks, record, timing
from gpu_kernels.proof.check import wrong_apart
from gpu_kernels.proof.compile import compile_problems
from gpu_kernels.proof.contenders import OURS, contenders, operand_sets
from gpu_kernels.proof.problems import Problem, all_ops, family, in_turn, problems_of, refusal


class WrongResults(RuntimeError):
    """Kernels that are wrong, one line each: nothing was timed."""


@dataclass(slots=True)
class Measurement:
    """A run on one GPU: rows come one problem at a time, and refused or skipped ones are listed when they end."""

    ops: list[str]
    budget_s: float
    commit: str | None = None
    device: str = "cuda"
    tell: Callable[[str], None] = lambda line: None
    about: dict = field(default_factory=dict)
    machine_peaks: dict[str, float] = field(default_factory=dict)
    refused: list[Problem] = field(default_factory=list)
    left_out: list[Problem] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def rows(self) -> Iterator[list[dict]]:
        """Each timed problem's records, the most important problems first.

        raises  RuntimeError without a CUDA GPU or a commit to name; WrongResults where a kernel is wrong
        """
        if not torch.cuda.is_available():
            raise RuntimeError("got no CUDA GPU, expected one; run it where torch.cuda.is_available()")
        self.about = record.provenance(self.commit)
        arch = compute_capability(self.device)
        self.tell(f"compiling {', '.join(self.ops)} for sm_{arch}")
        ops = [op for op in self.ops if op != timed_step.OP]
        compile_problems(ops, arch)
        self.tell(f"checking, {self.elapsed():.0f} s")
        known = [problem for op in ops for problem in problems_of(op)]
        checked = [problem for problem in known if not refusal(problem, arch)]
        self.refused = [problem for problem in known if refusal(problem, arch)]
        if wrong := wrong_apart(ops, self.device, arch):
            raise WrongResults("\n  ".join(["wrong, so nothing was timed:", *wrong]))
        self.tell(f"{len(checked)} problems right, timing, {self.elapsed():.0f} s")
        self.machine_peaks = machine_peaks.measure_machine_peaks(self.device)
        if timed_step.OP in self.ops:
            yield self._decode()
        timed = in_turn(checked)
        for index, problem in enumerate(timed):
            if self.elapsed() > self.budget_s:
                self.left_out = timed[index:]
                return
            yield self._time(problem, arch)

    def epilogue(self) -> list[str]:
        """The machine peaks, and refused or skipped problems: one line each."""
        told = ["machine peaks: " + ", ".join(f"{name} {value:.4g}" for name, value in self.machine_peaks.items())]
        if self.refused:
            told.append("not for this GPU: " + "; ".join(map(str, self.refused)))
        if self.left_out:
            told.append(f"left out after {self.budget_s:.0f} s: " + "; ".join(map(str, self.left_out)))
        return told

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def _decode(self) -> list[dict]:
        """The eager step counts as the graph's peer."""
        rows = timed_step.decode_rows(self.device)
        graphs = {row["label"]: row for row in rows if row["impl"] == "graph"}
        found = []
        for row in rows:
            graph = graphs[row["label"]]
            is_graph = row is graph
            rated = _rates(row, self.machine_peaks) if is_graph else _ratio(row["samples_us"], graph["samples_us"])
            found.append(row | rated | {"machine_peaks": self.machine_peaks} | self.about)
        return found

    def _time(self, problem: Problem, arch: int) -> list[dict]:
        sets = timing.num_sets(problem.num_bytes, self.about["l2_bytes"])
        ways = contenders(problem, arch, operand_sets(problem, self.device, sets))
        samples, absent = timing.time_interleaved({way.impl: way.call for way in ways}, sets)
        about = {
            "op": problem.op.name,
            "label": problem.label,
            "sizes": problem.sizes,
            "row": problem.row(arch),
            "sets": sets,
            "machine_peaks": self.machine_peaks,
        } | self.about
        found = [
            _result(problem, way.impl, way.is_ours, samples, self.machine_peaks) for way in ways if way.impl in samples
        ]
        missing = [{"impl": impl, "absent": why} for impl, why in absent.items()]
        return [row | about for row in found + missing]


def _result(problem: Problem, impl: str, is_ours: bool, samples: dict, peaks: dict[str, float]) -> dict:
    """Raw samples, their median, and of ours the rates and shares; of a peer how many times as fast ours is."""
    result = {"impl": impl, "us": timing.median(samples[impl]), "samples_us": samples[impl]}
    if not is_ours:
        return result | _ratio(samples[impl], samples.get(OURS, []))
    costs = {"ops": problem.ops, "num_bytes": problem.num_bytes, "bound": problem.bound}
    return result | costs | _rates(result | costs, peaks)


def _rates(row: dict, peaks: dict[str, float]) -> dict:
    ops_s, bytes_s = row["ops"] / row["us"] * 1e6, row["num_bytes"] / row["us"] * 1e6
    peak = peaks.get(machine_peaks.PEAK_OF[row["bound"]])
    share = (bytes_s if row["bound"] == "bandwidth" else ops_s) / peak if peak else None
    return {"tops": ops_s / 1e12, "gb_s": bytes_s / 1e9, "share": share}


def _ratio(theirs: list[float], ours: list[float]) -> dict:
    """The median ratio of samples that were taken in turn."""
    ratios = [one / other for one, other in zip(theirs, ours, strict=False)]
    return {"ours_times_as_fast": timing.median(ratios)} if ratios else {}


def line(row: dict) -> str:
    """The text of a row, for people."""
    label = f"{row['op']:20} {row['label']:32} {row['impl']:34}"
    if "absent" in row:
        return f"{label} n/a ({row['absent']})"
    if "tops" not in row:
        ratio = row.get("ours_times_as_fast")
        return f"{label} {row['us']:9.2f} us" + (f"  ours {ratio:.2f}x as fast" if ratio else "")
    share = "" if row["share"] is None else f" ({row['share']:.0%} of {row['bound']})"
    return f"{label} {row['us']:9.2f} us {row['tops']:8.1f} TOPS {row['gb_s']:7.0f} GB/s{share}"


def append(folder: Path, rows: list[dict]) -> None:
    """To <folder>/<family>.jsonl."""
    record.append(folder / f"{family(rows[0]['op'])}.jsonl", rows)


def known_ops(only: str) -> list[str]:
    """The ops whose name contains `only`. raises ValueError if there is no such op"""
    known = [*all_ops(), timed_step.OP]
    found = [op for op in known if only in op]
    if not found:
        raise ValueError(f"got --only {only!r}, expected part of one of {', '.join(known)}")
    return found
