"""Text of strangers on a terminal: no control character arrives there."""

import json

import pytest

from qbench.words.read import LINES, markdown_grid, printable

RED, CSI, TURN = "\x1b[31m", "\x9b2J", "\u202e"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("plain \u00e9 \u4e2d \U0001f469\u200d\U0001f4bb", "plain \u00e9 \u4e2d \U0001f469\u200d\U0001f4bb"),
        (f"a{RED}b", "a\\u001b[31mb"),
        (f"{CSI}{TURN}\x7f\0", "\\u009b2J\\u202e\\u007f\\u0000"),
        ("a\r\n\tb\u2028\ud800", "a\\r\\n\\tb\\u2028\\ud800"),
    ],
    ids=["ordinary", "colour", "controls", "lines"],
)
def test_control_characters_become_escapes(text, expected):
    assert printable(text) == expected


def test_ends_of_lines_stay_in_a_text_of_several():
    assert printable("a\n\tb\r\x1b", LINES) == "a\n\tb\\r\\u001b"


def test_json_keeps_its_meaning():
    value = {"a\x9b": [f"{RED}{TURN}\n", 1.5]}
    text = printable(json.dumps(value, ensure_ascii=False))
    assert text.isascii() and json.loads(text) == value


def test_columns_of_a_table_stay_aligned():
    lines = markdown_grid([["name", "n"], [f"{RED}x\n|", "1"]], [False, True]).splitlines()
    assert len(lines) == 3 and len({len(line) for line in lines}) == 1
