"""Markdown tables that also read in a terminal."""

from qbench.words.read import markdown_grid


def test_grid_pads_by_its_columns():
    assert markdown_grid([["a", "bb"], ["ccc", "1"]], [False, True]) == "| a   | bb |\n| --- | -: |\n| ccc |  1 |"
