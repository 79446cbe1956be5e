from qbench.cli.output import aligned


def test_columns_stand_below_their_headings():
    lines = aligned(("plan", "time"), [("elided *", "1.25 ms"), ("", "n/a")])
    assert lines == ["plan         time", "elided *  1.25 ms", "              n/a"]


def test_no_row_leaves_the_headings():
    assert aligned(("a", "b"), []) == ["a  b"]
