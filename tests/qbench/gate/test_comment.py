from qbench.gate.check import Check, judge
from qbench.gate.comment import figure, markdown, plain
from qbench.gate.result import GateAbout, GateResult
from qbench.statistics.estimate import Estimate

ABOUT = GateAbout("suites/ci.yaml", "commit main", ("a" * 40, False), ("b" * 40, True), "a4dab71faf5c", 12.0)
WORSE = Check(
    "quality", "ref:llama q4_k_m", "kld", "nats", 2.7e-3, 3.1e-3, Estimate(4e-4, 1e-4, 2e-4, 6e-4, 1e-4), floor=1e-4
)
SLOW = Check(
    "speed", "ref:llama bf16", "tg64", "tok/s", 6000.0, 5700.0, Estimate(0.05, 0.01, 0.03, 0.07, 0.5), freedom=5
)
BYTES = Check("memory", "ref:llama bf16", "weights held", "bytes", 7.08e6, 7.08e6, Estimate(0.0), is_exact=True)


def result(*checks: Check, **details) -> GateResult:
    return GateResult(judge(checks), about=ABOUT, **details)


def test_a_red_comment_has_the_change_and_its_certainty():
    text = markdown(result(WORSE, SLOW, BYTES))
    first, second, *_ = text.split("\n\n")
    assert first == "## qbench gate: RED"
    assert second == "1 of 3 checks worse: kld of ref:llama q4_k_m by 4.0e-04 nats (p 0.00011 among all)."
    table = text.split("\n\n")[2]
    assert table.count("\n") == 2 and "**worse**" in table and "[+2.0e-04 nats, +6.0e-04 nats]" in table


def test_every_check_is_below_the_fold_with_its_detectable_loss():
    text = markdown(result(WORSE, SLOW, BYTES))
    fold = text.partition("<details>")[2].partition("</details>")[0]
    for part in ("All 3 checks", "tg64", "6000 tok/s", "+5.00 % [+3.00 %, +7.00 %]", "exact", "at most 5 % of gates"):
        assert part in fold, part
    assert "aaaaaaaaaa" in text and "bbbbbbbbbb+changes" in text and "a4dab71faf5c" in text


def test_a_green_comment_lists_unchecked_cases():
    text = plain(result(SLOW, BYTES, not_checked=["speed, as asked"]))
    assert text.endswith("None of 2 checks is worse.\n") and "not checked: speed, as asked" in text
    assert markdown(result(BYTES)).startswith("## qbench gate: green")


def test_a_case_that_no_longer_runs_is_red():
    found = result(BYTES, failed={"ref:llama q8_0": "the worker was killed by SIGSEGV"})
    assert found.is_red and "**ref:llama q8_0 no longer runs**: the worker was killed" in markdown(found)


def test_a_shown_figure_is_never_red():
    found = result(Check(**{**{name: getattr(WORSE, name) for name in Check.__slots__}, "is_gate": False}))
    assert not found.is_red and "worse (report)" in markdown(found)


def test_figures_are_in_the_units_that_people_read():
    shown = [figure(*pair) for pair in ((3.4437, ""), (2.7e-3, "nats"), (0.982, "share"), (4096.0, "bytes"))]
    assert shown == ["3.4437", "2.70e-03", "98.20 %", "4096 B"]
    assert figure(7.08e6, "bytes") == "7.08 MB" and figure(6181.6, "tok/s") == "6182 tok/s"
