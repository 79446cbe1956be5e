"""The plots of KV-cache policies on the page, in headless Chromium."""

import json

import pytest
from support.policy_records import policy_record, policy_sweep
from support.sample_records import sweep_records, write_records

from qbench.measure.records.record import parse_record
from qbench.report import load_records
from qbench.report.columns import all_columns
from qbench.report.extra_columns import with_extra
from qbench.report.page import page_table
from qbench.report.policy_rows import fronts, policy_rows, split_policy

POLICIES = [
    "full",
    "h2o:256",
    "snapkv:budget=64,window=16",
    "h2o:25%,recent=0.5",
    "fastgen:recovery=0.95",
    "sinks:4+60",
]
SLOW = pytest.mark.exhaustive("a page of its own takes seconds; the plots are in every run")
# Per marker: x, whether it is filled, whether a downward arrow marks it
MARKERS = """plot => plot.series.flatMap(({ points }) =>
  points.map(({ x, filled, mark }) => [x, filled, mark === "↓"]))"""
OF_H2O = "plot => plot.series.find(({ name }) => name === 'h2o').points"


def drawn(opened, records, **window):
    page = opened(records, **window).page
    page.wait_for_selector("body[data-drawn]")
    return page


@pytest.fixture(scope="module")
def two_formats(opened):
    """A wide window, whose filters a test must take back."""
    return drawn(opened, records_in_two_formats(), width=1280)


def records_in_two_formats() -> list[dict]:
    return [
        *policy_sweep(),
        policy_record("full", 1e-5, 1_040_000, 420.0, kv_format="kv-int8"),
        policy_record("h2o:budget=64", 0.25, 80_000, 210.0, kv_format="kv-int8"),
    ]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(390, "dark", marks=SLOW)])
def test_filled_points_are_those_that_the_table_marks(two_formats, opened, width, scheme):
    records = records_in_two_formats()
    page = two_formats if width == 1280 else drawn(opened, records, width=width, scheme=scheme)
    rows = policy_rows([parse_record(json.dumps(record).encode()) for record in records])
    for plot, side in (("#plot-held", 0), ("#plot-decode", 1)):
        expected = []
        for row, marks in zip(rows, fronts(rows), strict=True):
            x = (row.speed.kv_bytes_held, row.speed.tg_tok_s)[side]
            expected.append([x, marks[side], row.is_full])
        assert sorted(page.locator(plot).evaluate(MARKERS)) == sorted(expected)
    assert page.locator(".policies .key li").all_inner_texts() == ["recent", "h2o", "full cache", "kv-f16", "kv-int8"]
    assert "The full cache is drawn at the lower edge: mean KLD 1.00e-06 to 1.00e-05." in page.content()
    assert page.evaluate("document.documentElement.scrollWidth") == width


@SLOW
def test_whiskers_are_the_intervals_of_the_records(opened):
    page = drawn(opened, [policy_record("h2o:budget=64", 0.25, 80_000, 200.0), *policy_sweep()[:1]])
    (point,) = page.locator("#plot-decode").evaluate(OF_H2O)
    for axis, length in (("x", 2.0), ("y", 0.025)):
        low, high = point[f"{axis}Range"]
        assert [point[axis] - low, high - point[axis]] == pytest.approx([length] * 2)


def test_a_filter_narrows_the_plots_and_budgets_are_split_as_in_the_tables(two_formats):
    page = two_formats
    found = page.evaluate("texts => texts.map(splitPolicy)", POLICIES)
    assert [tuple(each) for each in found] == [split_policy(text) for text in POLICIES]
    page.locator("select[name=kv_format]").select_option("kv-int8")
    page.wait_for_function("document.querySelector('#plot-held').series.length === 2")
    page.locator("select[name=kv_format]").select_option("")
    page.wait_for_function("document.querySelector('#plot-held').series.length > 2")


@SLOW
def test_a_full_cache_near_the_policies_is_drawn_in_its_place(opened):
    page = drawn(opened, [policy_record("full", 0.02, 2_000_000, 400.0), *policy_sweep()[1:]])
    assert not any(is_below for *_, is_below in page.locator("#plot-held").evaluate(MARKERS))


def test_intervals_of_decode_speed_are_packed_for_policies_alone(tmp_path):
    for records, expected in ((policy_sweep(), True), (sweep_records(), False)):
        frame = with_extra(load_records(write_records(tmp_path / "records.jsonl", records)))
        columns = all_columns({str(name): values for name, values in frame.items()})
        assert ("tg_low" in page_table(frame, columns, 8)) == expected


@SLOW
def test_recipes_have_their_own_plots_if_there_are_more_caches_than_symbols(opened):
    records = []
    for recipe in ("bf16", "q8_0"):
        for kv_format in ("kv-f16", "kv-fp8", "kv-int8", "kv-int4"):
            for record in policy_sweep(kv_format):
                case = record["case"] | {"recipe": recipe}
                records.append(record | {"case": case, "key": f"{recipe} {record['key']}"})
    page = drawn(opened, records)
    headings = page.locator(".policies h2").all_inner_texts()
    assert headings == ["KV-cache policies: bf16", "KV-cache policies: q8_0"]
    for plots in page.locator(".policies .plots").all():
        traces = plots.locator(".plot").first.evaluate(
            "plot => plot.series.map((t) => [t.name, t.points[0].symbol].join())"
        )
        assert len(traces) == len(set(traces)) == 12  # three policies in four formats
