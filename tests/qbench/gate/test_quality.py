import numpy as np
import pytest
from support.close import assert_close
from support.gate_rows import PROTOCOL, blocks, row

from qbench.gate.check import judge
from qbench.gate.pairing import Pair
from qbench.gate.quality import quality_checks
from qbench.measure.records.record import Record
from quant.errors import InputError

FLOORS = {"perplexity": 3e-4, "kld": 1e-4}


def gate(baseline: dict, now: dict, floors: dict = FLOORS) -> dict:
    by_protocol = {PROTOCOL["hash"]: floors}
    return {
        check.metric: check
        for check in judge(quality_checks(Pair("a case", *map(Record.from_json, (baseline, now))), by_protocol))
    }


def test_each_protocol_has_its_own_floor_and_freedom():
    def both(of: dict) -> dict:
        other = {name: of[name][:12] for name in ("tokens", "nll", "kld", "same_top")}
        quality = row(of=of)["metrics"]
        return row(
            of=of,
            protocols={
                "windows-8": quality,
                "documents": quality | {"blocks": of | other, "protocol": PROTOCOL | {"hash": "0"}},
            },
        )

    checks = gate(both(blocks()), both(blocks(1, nll=2e-4, kld=5e-5, spread=1e-6)))
    assert {name: (check.floor, check.freedom, check.unit, check.verdict) for name, check in checks.items()} == {
        "perplexity (windows-8)": (3e-4, 23, "", "same"),
        "kld (windows-8)": (1e-4, 23, "nats", "same"),
        "perplexity (documents)": (0.0, 11, "", "worse"),
        "kld (documents)": (0.0, 11, "nats", "worse"),
    }


def test_the_same_bits_are_the_same():
    checks = gate(row(), row())
    assert {name: (check.loss.value, check.verdict) for name, check in checks.items()} == {
        "perplexity": (0.0, "same"),
        "kld": (0.0, "same"),
    }


def test_a_loss_is_found_by_its_added_error():
    checks = gate(row(), row(of=blocks(1, nll=2e-3, kld=1e-3)))
    # the spread of 24 blocks: 1e-4 nats from block to block, a tenth of that in the KLD
    assert_close(checks["perplexity"].loss.value, np.expm1(2e-3), atol=4 * 1e-4 / np.sqrt(24))
    assert_close(checks["kld"].loss.value, 1e-3, atol=4 * 1e-5 / np.sqrt(24))
    assert {check.verdict for check in checks.values()} == {"worse"}


def test_a_gain_is_better_and_never_red():
    checks = gate(row(), row(of=blocks(1, nll=-2e-3, kld=-1e-3)))
    assert {check.verdict for check in checks.values()} == {"better"}


def test_no_change_within_the_floor_is_worse():
    checks = gate(row(), row(of=blocks(1, nll=2e-4, kld=5e-5, spread=1e-6)))
    assert {check.verdict for check in checks.values()} == {"same"}
    assert max(check.adjusted_p for check in checks.values()) < 1e-3


def test_scatter_without_a_loss_is_no_loss():
    checks = gate(row(), row(of=blocks(1, spread=1e-2)), floors={})
    assert {check.verdict for check in checks.values()} == {"same"}


def test_logits_that_are_no_longer_finite_are_worse():
    broken = row(perplexity=None, kld=None, same_top=None, non_finite=3, blocks=None)
    checks = gate(row(), broken)
    assert {name: check.verdict for name, check in checks.items()} == {"perplexity": "worse"}
    with pytest.raises(InputError, match="not finite either"):
        gate(broken, broken)


@pytest.mark.parametrize(
    "baseline, now, message",
    [
        pytest.param(
            row(), row(protocol=PROTOCOL | {"window": 16, "hash": "e" * 16}), "window.*8.*16", id="another protocol"
        ),
        pytest.param(row(blocks=None), row(), "no blocks", id="an older record"),
        pytest.param(row(), row(tasks={"blimp": {}}), "not measured on blimp", id="a task that it lacks"),
        pytest.param(row(), row(reference="ref:other"), "unlike references", id="another reference"),
    ],
)
def test_rows_that_do_not_pair_are_refused(baseline, now, message):
    with pytest.raises(InputError, match=message):
        gate(baseline, now)


def task(correct: str, items: str = "one") -> dict:
    return {
        "metric": "acc",
        "value": correct.count("1") / len(correct),
        "items_sha256": items,
        "correct": correct,
        "protocol": {"items_sha256": items},
        "protocol_hash": items,
    }


def test_a_task_is_judged_item_by_item():
    before, now = "1" * 80 + "0" * 20, "1" * 60 + "0" * 40
    lost = gate(row(tasks={"recall": task(before)}), row(tasks={"recall": task(now)}))["recall"]
    assert (lost.verdict, lost.unit, lost.loss.value) == ("worse", "share", pytest.approx(0.2))
    swapped = gate(row(tasks={"recall": task("10" * 50)}), row(tasks={"recall": task("01" * 50)}))["recall"]
    assert swapped.verdict == "same" and swapped.loss.value == 0
    with pytest.raises(InputError, match="unlike tasks"):
        gate(row(tasks={"recall": task(before)}), row(tasks={"recall": task(now, "other")}))
