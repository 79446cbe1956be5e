import pytest
from support.sample_records import make_record, write_records

from qbench.cli.output import aligned
from qbench.words.read import LINES, printable

RED, CSI, TURN = "\x1b[31m", "\x9b2J", "\u202e"


def test_columns_are_aligned_with_their_headings():
    lines = aligned(("plan", "time"), [("elided *", "1.25 ms"), ("", "n/a")])
    assert lines == ["plan         time", "elided *  1.25 ms", "              n/a"]


def test_no_row_leaves_the_headings():
    assert aligned(("a", "b"), []) == ["a  b"]


@pytest.mark.parametrize(
    "command",
    [
        ("report",),
        ("report", "--format", "csv"),
        ("report", "--json"),
        ("report", "--columns", "recipe"),
        ("query", "select recipe, model from results"),
        ("query", "select recipe, model from results", "--format", "csv"),
        ("query", "select recipe, model from results", "--json"),
        ("query", f"select '{RED}{CSI}' as \"{RED}\""),
        ("query", f'from "{RED}"'),
    ],
    ids=" ".join,
)
def test_no_command_prints_the_escapes_of_a_record(qbench, tmp_path, command):
    row = make_record("q4_0")
    row["case"] |= {"recipe": f"q4{RED}_0{CSI}{TURN}", "model": f"{RED}model\r"}
    records = write_records(tmp_path / "r.jsonl", [row])
    outcome = qbench(*command, *(("--records",) if command[0] == "query" else ()), records)
    printed = outcome.out + outcome.err
    assert "001b" in printed
    assert printable(printed, LINES) == printed
