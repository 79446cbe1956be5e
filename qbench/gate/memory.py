"""Memory: bytes of weights and of keys and values exactly, the peak of fresh processes by how much they scatter."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qbench.gate.check import Check
from qbench.gate.pairing import Pair
from qbench.measure.metrics import Metrics
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import student_estimate
from quant.present import present

# Largest difference of peaks of one code in processes of other hours: the part of a library's file that the system maps
# around a fault (64 KiB at most) depends on its cache. torch's libraries have hundreds of such places.
OTHER_HOURS = 2 << 20
# The same for processes in turn. A few more lines of Python do not matter; 200 KB can already be seen.
IN_TURN = 1 << 20

HELD = "weights held"
EXACT: dict[str, Callable[[Metrics], float | None]] = {
    "weights stored": lambda metrics: metrics.figure("size_bytes"),
    HELD: lambda metrics: present(present(metrics.speed).predicted_bytes)["resident"],
    "KV per token": lambda metrics: metrics.figure("kv_bytes_per_token"),
}


def exact_checks(pair: Pair) -> list[Check]:
    """Checks of sizes that follow from formats and shapes alone: one byte more is a byte more.

    Held bytes also follow from the kernels of a machine, so they are not compared with another machine's.
    """
    metrics = [metric for metric in EXACT if not (pair.is_elsewhere and metric == HELD)]
    return [_exact_check(pair, metric) for metric in metrics]


def stored_check(pair: Pair) -> Check:
    """Check of the bytes of weights alone."""
    return _exact_check(pair, "weights stored")


def _exact_check(pair: Pair, metric: str) -> Check:
    old, new = (float(present(EXACT[metric](row.figures))) for row in (pair.baseline, pair.now))
    return Check("memory", pair.name, metric, "bytes", old, new, Estimate(_share(old, new)), is_exact=True)


def peak_checks(peaks: Mapping[str, tuple[Sequence[int], Sequence[int]]], floor_bytes: float) -> list[Check]:
    """The most memory that a process held, of several processes of each case and side.

    The tolerance is theirs: processes of one case and side differ by pages that chance maps, which is the same for all
    cases, so that all of them together show how far that reaches.

    peaks         name of a case -> the baseline's, this tree's
    floor_bytes   a difference up to this counts as no difference
    """
    sides = {case: [np.asarray(side, dtype=np.float64) for side in both] for case, both in peaks.items()}
    freedom = sum(len(side) - 1 for both in sides.values() for side in both)
    squares = sum(float(np.square(side - side.mean()).sum()) for both in sides.values() for side in both)
    deviation = math.sqrt(squares / max(1, freedom))
    checks = []
    for case, (old, new) in sides.items():
        baseline, now = float(old.mean()), float(new.mean())
        loss = Estimate(now / baseline - 1)
        if freedom:
            loss = student_estimate(loss.value, deviation * math.sqrt(1 / len(old) + 1 / len(new)) / baseline, freedom)
        floor = floor_bytes / baseline
        checks.append(Check("memory", case, "peak RSS", "bytes", baseline, now, loss, freedom=freedom, floor=floor))
    return checks


def _share(old: float, new: float) -> float:
    """Growth as a share of the old; 1 if there was nothing before."""
    return (new - old) / old if old else float(new > 0)
