import numpy as np
import pytest
from support.gate_rows import row

from qbench.gate.check import judge
from qbench.gate.memory import exact_checks, peak_checks
from qbench.gate.pairing import Pair
from qbench.measure.records.record import Record

PAGE = 4096


def test_bytes_that_follow_from_shapes_are_exact():
    now = row(size_bytes=2_219_521, kv_bytes_per_token=3071)
    checks = {
        check.metric: check
        for check in judge(exact_checks(Pair("a case", Record.from_json(row()), Record.from_json(now))))
    }
    verdicts = {name: check.verdict for name, check in checks.items()}
    assert verdicts == {"weights stored": "worse", "weights held": "same", "KV per token": "better"}


def peaks(rng: np.random.Generator, count: int, more: int = 0) -> list[int]:
    """As processes of one tree scatter: some twenty pages."""
    return (270_000_000 + more + rng.normal(0, 20 * PAGE, count).round() * 1).astype(int).tolist()


@pytest.mark.parametrize("baseline, now", [(4, 4), (2, 2), (4, 3)])
def test_unchanged_peaks_are_seldom_worse(baseline, now):
    rng, runs = np.random.default_rng(5), 1000
    red = 0
    for _ in range(runs):
        checks = judge(peak_checks({case: (peaks(rng, baseline), peaks(rng, now)) for case in "abcd"}, 0))
        red += any(check.verdict == "worse" for check in checks)
    assert red / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_a_megabyte_more_is_worse_only_in_its_case():
    rng = np.random.default_rng(6)
    found = {"a": (peaks(rng, 3), peaks(rng, 3)), "b": (peaks(rng, 3), peaks(rng, 3, more=1 << 20))}
    same, more = judge(peak_checks(found, 0))
    assert (same.verdict, more.verdict) == ("same", "worse")
    assert more.detectable < (1 << 20) / 270e6
    assert {check.verdict for check in judge(peak_checks(found, 2 << 20))} == {"same"}


def test_one_process_per_side_decides_nothing():
    (check,) = judge(peak_checks({"a": ([270_000_000], [290_000_000])}, 0))
    assert check.verdict == "untold"
