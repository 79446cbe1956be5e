"""The noise floor of speeds in tables and on the page, where a sweep measured them twice."""

import json

import pytest
from support.browser import WatchedPage, chromium
from support.measured_twice import RECIPES, measured, second, twice
from support.sample_records import make_record, write_records

from qbench.compare.rows import compare_with_baseline
from qbench.compare.side import Rows
from qbench.compare.speed_floor import kept_speed_floors
from qbench.report import render_report, write_page

# The second row lies within the floor of the first, the third beyond it.
SPEEDS = (1.0, 0.96, 0.5, 1.0)


@pytest.fixture
def records(tmp_path):
    rows = [measured(recipe, speed) for recipe, speed in zip(RECIPES, SPEEDS, strict=True)]
    again = [second(row, speed * by) for row, speed, by in zip(rows, SPEEDS, (1.01, 0.98, 1.0, 1.03), strict=True)]
    return write_records(tmp_path / "records.jsonl", [*rows, *again])


def test_a_table_says_how_far_its_speeds_lie_from_themselves(records):
    (floor,) = kept_speed_floors([str(records)]).values()
    text = render_report(records, "md", ["recipe", "pp_floor", "tg_floor"])
    pp, tg = (f"{100 * floor[f'{phase}_tok_s']:.1f}" for phase in ("pp", "tg"))
    rows = [[cell.strip() for cell in line.split("|")[2:4]] for line in text.splitlines() if line.startswith("| ")]
    assert rows == [["pp floor %", "tg floor %"], ["---------:", "---------:"], *[[pp, tg]] * len(RECIPES)]
    assert f"a speed measured again lies within {pp} % (pp) and {tg} % (tg) of itself" in text
    assert json.loads(render_report(records, "json"))[0]["pp_floor"] == floor["pp_tok_s"]


def test_rows_of_other_work_have_none(tmp_path):
    other = make_record("bf16", machine="another")
    text = render_report(write_records(tmp_path / "records.jsonl", [*twice((1.01, 0.98, 1.0, 1.03)), other]), "json")
    assert [row["pp_floor"] is None for row in json.loads(text)].count(True) == 1


def test_without_a_second_time_nothing_is_said(tmp_path):
    text = render_report(write_records(tmp_path / "records.jsonl", twice(())), "md")
    assert "measured again" not in text


def test_the_page_judges_by_it_as_compare_does(records, tmp_path):
    compared, _ = compare_with_baseline(Rows(str(records), {}), RECIPES[0])
    expected = [cell.verdict for one in compared for cell in one.cells if cell.metric == "pp_tok_s"]
    assert expected[:2] == ["same", "worse"]
    with chromium() as browser:
        watched = WatchedPage(browser, write_page(records, tmp_path / "page.html"))
        found = []
        for recipe in RECIPES[1:]:
            keys = [
                make_record(name)["key"][: watched.page.evaluate("ABOUT.key_digits")] for name in (RECIPES[0], recipe)
            ]
            page = watched.at(f"#/compare/{keys[0]}/{keys[1]}")
            row = page.locator("table.comparison tr", has_text="pp tok/s")
            assert "of itself" in row.inner_text()
            found.append(row.locator("td.verdict").inner_text().split()[1])
        watched.close()
    assert found == expected
