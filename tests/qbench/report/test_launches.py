"""Speeds of several launches in tables and on the page."""

import json

import pytest
from support.browser import WatchedPage
from support.measured_twice import RECIPES, measured, second, twice
from support.sample_records import make_record, write_records

from qbench.comparison.kept_launches import kept_launches
from qbench.comparison.rows import compare_with_baseline
from qbench.comparison.side import Rows
from qbench.report import render_report, write_page

# The second row is within the spread of the first, the third beyond it.
SPEEDS, FACTORS = (1.0, 0.97, 0.5, 1.0), (1.01, 0.98, 1.0, 1.03)


@pytest.fixture
def records(tmp_path):
    rows = [measured(recipe, speed) for recipe, speed in zip(RECIPES, SPEEDS, strict=True)]
    again = [second(row, speed * by) for row, speed, by in zip(rows, SPEEDS, FACTORS, strict=True)]
    return write_records(tmp_path / "records.jsonl", [*rows, *again])


def test_a_table_has_the_mean_of_the_launches_and_its_interval(records):
    row = measured(RECIPES[0])
    speed = kept_launches([str(records)])[row["key"], row["machine"]["id"], row["code"]]["pp_tok_s"].estimate
    text = render_report(records, "md", ["recipe", "pp_tok_s"])
    rows = [[cell.strip() for cell in line.split("|")[2:3]] for line in text.splitlines() if line.startswith("| ")]
    assert rows[0] == ["pp512 tok/s [95 %]"]
    assert rows[2] == [f"{speed.value:.0f} [{speed.low:.0f}, {speed.high:.0f}]"]
    assert "speeds: mean of 2 processes within 1 minute, which differ by" in text
    found = json.loads(render_report(records, "json"))[0]
    assert (found["pp_tok_s"], found["pp_launches"], found["pp_launch_freedom"]) == (speed.value, 2, 4)


def test_the_note_has_the_time_between_the_first_launch_and_the_last(tmp_path):
    first = measured(RECIPES[0]) | {"time": "2026-01-01T10:00:00.000+00:00"}
    later = second(first, 1.01) | {"time": "2026-01-01T12:29:01.000+00:00"}
    text = render_report(write_records(tmp_path / "records.jsonl", [first, later]), "md", ["recipe", "pp_tok_s"])
    assert "speeds: mean of 2 processes within 150 minutes, which differ by" in text


def test_a_share_of_the_roofline_is_the_median_of_the_launches(tmp_path):
    first = measured(RECIPES[0])
    first["metrics"]["roofline"] = {"pp": 0.3, "tg": None}
    launches = [second(first, 1.01, key=f"again {n}", metrics=first["metrics"] | {"roofline": {"pp": share, "tg": 0.9}})
                for n, share in enumerate((0.5, 0.6))]  # fmt: skip
    text = render_report(write_records(tmp_path / "records.jsonl", [first, *launches]), "json")
    (found,) = json.loads(text)
    assert (found["roofline_pp"], found["roofline_tg"]) == (0.5, None)


def test_rows_of_other_work_have_no_interval(tmp_path):
    other = make_record("bf16", machine="another")
    text = render_report(write_records(tmp_path / "records.jsonl", [*twice(FACTORS), other]), "json")
    assert [row["pp_launch_low"] is None for row in json.loads(text)].count(True) == 1


def test_a_speed_of_one_process_has_no_brackets(tmp_path):
    text = render_report(write_records(tmp_path / "records.jsonl", twice(())), "md", ["recipe", "pp_tok_s"])
    assert "| pp512 tok/s |" in text and "one process each, so they have no interval" in text


def test_the_page_judges_by_it_as_compare_does(records, browser, tmp_path):
    compared, _ = compare_with_baseline(Rows(str(records), {}), RECIPES[0])
    expected = [cell.verdict for one in compared for cell in one.cells if cell.metric == "pp_tok_s"]
    assert expected[:2] == ["same", "worse"]
    watched = WatchedPage(browser, write_page(records, tmp_path / "page.html"))
    found = []
    for recipe in RECIPES[1:]:
        keys = [make_record(name)["key"][: watched.page.evaluate("ABOUT.key_digits")] for name in (RECIPES[0], recipe)]
        page = watched.at(f"#/compare/{keys[0]}/{keys[1]}")
        row = page.locator("table.comparison tr", has_text="pp tok/s")
        assert "2 and 2 launches" in row.inner_text()
        found.append(row.locator("td.verdict").inner_text().split()[1])
    watched.close()
    assert found == expected
