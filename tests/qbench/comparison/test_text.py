import pytest

from qbench.comparison import text
from qbench.statistics.cell import Cell, Flips
from qbench.statistics.estimate import Estimate


def cell(metric="perplexity", kind="ratio", estimate=None, **more):
    return Cell(metric, 3.0, 3.3, kind, True, estimate or Estimate(1.0123, 0.001, 1.0101, 1.0145, 0.001), **more)


@pytest.mark.parametrize(
    "given, expected",
    [
        (cell(), "+1.23 % [+1.01, +1.45]"),
        (cell(estimate=Estimate(1.0, 1e-6, 0.9999, 1.0001)), "0 % [-0.0100, +0.0100]"),
        (cell(estimate=Estimate(1.5)), "+50.0 % [n/a]"),
        (cell("tg_tok_s", estimate=Estimate(4.0, 0.1, 3.5, 4.5)), "4.00 times [3.50 times, 4.50 times]"),
        (cell("size_bytes", estimate=Estimate(0.25, 0.0, 0.25, 0.25), exact=True), "-75.0 %"),
        (cell("kld", "difference", Estimate(1.5e-3, 1e-4, 1.2e-3, 1.9e-3)), "+1.50e-03 [+1.20e-03, +1.90e-03]"),
        (cell("kld (gptq-2048)", "difference", Estimate(0.0, 0.0, 0.0, 0.0)), "0 [0, 0]"),
        (cell("acc", "difference", Estimate(-0.031, 0.001, -0.05, 0.002)), "-3.10 points [-5.00, +0.20]"),
        (cell("t", "difference", Estimate(-0.5, 0.1, -1.0, 0.1), unit="loss"), "-0.5 loss [-1, +0.1]"),
    ],
)
def test_a_change_is_written_with_its_interval(given, expected):
    assert text.change(given) == expected


def test_values_and_distances_in_their_units():
    assert [text.value(cell(name), 0.91234) for name in ("perplexity", "kld", "same_top")] == [
        "0.9123",
        "9.123e-01",
        "91.23 %",
    ]
    assert [text.value(cell("size_bytes"), size) for size in (4096, 2.2e6)] == ["4,096 B", "2.20 MB"]
    assert text.distance(cell(), 0.00123) == "0.12 %" and text.distance(cell(), 1.2) == "120 %"
    assert text.distance(cell("kld", "difference"), 1.23e-5) == "1.2e-05"
    assert text.distance(cell("acc", "difference"), 0.06) == "6 points"
    assert text.distance(cell("wikitext", unit="word_perplexity"), 0.0123) == "1.2 %"
    assert text.distance(cell(), None) == "n/a"


def test_probability_and_flips():
    assert [text.probability(p) for p in (1e-5, 0.0123, 0.5, None)] == ["< 0.001", "0.012", "0.50", "n/a"]
    assert text.flips(cell(flips=Flips(12, 3, 200))) == "; 12 lost, 3 gained of 200"


def test_headings_keep_the_convention():
    assert text.heading("kld (gptq-2048)") == "mean KLD (gptq-2048)" and text.heading("acc") == "acc"
