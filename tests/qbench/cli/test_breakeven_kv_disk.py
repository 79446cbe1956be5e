"""The kv-disk question: formats, figures, and bad input."""

import json

import pytest

ASKED = ("breakeven", "ref:llama", "--what", "kv-disk", "--rounds", "2", "--threads", "1")


def test_each_format_gets_its_point(qbench):
    lines = qbench(*ASKED, "--at", "70", "--only", "f32,kv-int4", "--json").out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["alternative"] for row in rows] == ["f32", "kv-int4"]
    for row in rows:
        (point,) = row["points"]
        assert point["size"] == 64, "full pages are stored"
        assert point["figures"]["computed_s"] > 0 and point["figures"]["loaded_s"] > 0
    assert rows[0]["points"][0]["figures"]["MB"] > rows[1]["points"][0]["figures"]["MB"] > 0


def test_the_table_shows_the_seconds(qbench):
    out = qbench(*ASKED, "--at", "64", "--only", "kv-f16").out
    assert "computed_s" in out and "loaded_s" in out and "64 prefix tokens" in out


@pytest.mark.parametrize(
    "arguments, named",
    [
        (("--only", "kv-kivi-2"), "no KV format that a prefix store keeps"),
        (("--cpu-time",), "leaves out the waiting for a disk"),
        (("--at", "99999"), "context holds"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_one_line_and_status_2(qbench, arguments, named):
    qbench(*ASKED, *arguments).fails_with(named)
