import pytest
from support.paired_records import measured_record
from support.row_comparison import collect, compare_rows

from qbench.comparison.comparison import judge_table
from qbench.comparison.table import make_grid

PROTOCOL = "f00d"  # hash of that of measured_record
BASE = measured_record("bf16", kld=1e-4)
ROWS = [measured_record("q8_0", loss=1e-5, seed=1), measured_record("q4_0", loss=0.004, seed=2)]


def test_one_pair_is_a_line_a_metric():
    grid = make_grid([compare_rows(BASE, ROWS[1], {PROTOCOL: {"perplexity": 1e-3, "kld": 1e-5, "same_top": 0.01}})])
    lines = {row[0]: row[1:] for row in grid.rows}
    assert list(lines) == ["perplexity", "mean KLD", "same top", "tg tok/s", "size"]
    _, _, change, verdict, p, floor, detectable, needed = lines["perplexity"]
    assert (verdict, p, floor, detectable, needed) == ("worse", "< 0.001", "0.1 %", "", "") and change.startswith(
        "+0.4"
    )
    assert lines["same top"][5] == "n/a", "an earlier record's floor of it is of another quantity"
    assert lines["tg tok/s"][2].endswith("[n/a]") and lines["tg tok/s"][3] == "n/a", "of one process each"
    assert lines["size"][3:] == ["better", "exact", "exact", "", ""]


def test_several_pairs_are_a_line_each():
    table = judge_table([collect(BASE, row) for row in ROWS])
    grid = make_grid(table)
    assert [row[0] for row in grid.rows] == ["q8_0", "q4_0"]
    perplexity = grid.headings.index("perplexity")
    assert grid.rows[0][perplexity].startswith("same") and "would find" in grid.rows[0][perplexity]
    assert "blocks would decide" in grid.rows[0][perplexity]
    assert grid.rows[1][perplexity].startswith("worse +0.4")
    assert len(make_grid(table, long=True).rows) == sum(len(comparison.cells) for comparison in table)


def test_a_sure_difference_within_the_floor_is_marked():
    comparisons = [compare_rows(BASE, row, {PROTOCOL: {"perplexity": 0.1}}) for row in ROWS]
    assert make_grid(comparisons).rows[1][1].endswith("; within the noise floor")
    assert make_grid(comparisons[1:]).rows[0][4] == "same, within the floor"


def test_a_common_floor_is_in_the_heading():
    comparisons = [compare_rows(BASE, row, {PROTOCOL: {"kld": 1e-5}}) for row in ROWS]
    assert "mean KLD (noise floor 1.0e-05)" in make_grid(comparisons).headings


def test_notes_name_the_rows_and_the_errors_outside_the_interval():
    markdown = make_grid([compare_rows(BASE, ROWS[0])]).markdown()
    for part in ("A: ref:llama bf16, protocol windows-1024 (f00d)", "B: ref:llama q8_0", "all 3 tests", "(Holm)"):
        assert part in markdown
    assert "tg tok/s: no verdict: measured in one process each" in markdown and "Noise floor: n/a until" in markdown


def test_metrics_that_are_not_compared_are_named_once():
    others = [measured_record(recipe, reference="ref:other") for recipe in ("q8_0", "q4_0")]
    notes = make_grid(judge_table([collect(BASE, row) for row in others])).notes
    (said,) = [note for note in notes if note.startswith("Not compared")]
    assert said.startswith("Not compared (q8_0, q4_0): kld: measured from unlike references")


@pytest.mark.parametrize("long", [False, True])
def test_every_row_has_every_column(long):
    grid = make_grid(judge_table([collect(BASE, row) for row in ROWS]), long=long)
    assert all(len(row) == len(grid.headings) == len(grid.numeric) for row in grid.rows)
