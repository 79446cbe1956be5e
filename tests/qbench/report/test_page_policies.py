"""The plots of KV-cache policies on the page, in headless Chromium."""

import json
from pathlib import Path

import pytest
from support.browser import WatchedPage
from support.policy_records import policy_record, policy_sweep
from support.sample_records import write_records

from qbench.measure.records.record import parse_record
from qbench.report import load_records
from qbench.report.columns import IF_ROWS_DIFFER_ON_PAGE
from qbench.report.launches import HIGH, LOW
from qbench.report.page import render_page
from qbench.report.policy_rows import fronts, policy_rows, split_policy

RESULTS = Path(__file__).parents[3] / "results"
KEPT = sorted(path.name for path in RESULTS.iterdir() if path.is_dir())
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
def test_filled_points_match_the_marks_of_the_table(two_formats, opened, width, scheme):
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
def test_whiskers_match_the_intervals_of_the_table_and_a_speed_of_one_process_lacks_them(opened):
    page = drawn(opened, [policy_record("h2o:budget=64", 0.25, 80_000, 200.0), *policy_sweep()[:1]])
    (point,) = page.locator("#plot-decode").evaluate(OF_H2O)
    assert point["yRange"] == pytest.approx([0.225, 0.275]) and not point.get("xRange")


@SLOW
def test_whiskers_of_a_speed_are_the_interval_over_its_launches(browser, tmp_path):
    records = [policy_record("h2o:budget=64", 0.25, 80_000, 200.0), *policy_sweep()[:1]]
    frame = load_records(write_records(tmp_path / "records.jsonl", records))
    frame = frame.assign(**{LOW.format("tg"): [150.0, 300.0], HIGH.format("tg"): [250.0, 500.0]})
    (tmp_path / "page.html").write_text(render_page(frame))
    watched = WatchedPage(browser, tmp_path / "page.html")
    (point,) = watched.page.locator("#plot-decode").evaluate(OF_H2O)
    assert point["xRange"] == [150, 250]
    watched.close()


@SLOW
def test_only_the_pareto_points_of_many_have_whiskers(opened):
    records = [
        record
        for kv_format in ("kv-f16", "kv-fp8", "kv-int8", "kv-int4", "kv-bf16")
        for record in policy_sweep(kv_format)
    ]
    plot = drawn(opened, records).locator("#plot-held")
    bare = plot.evaluate("plot => plot.series.flatMap(({ points }) => points).filter((p) => !p.filled && p.yRange)")
    filled = plot.evaluate("plot => plot.series.flatMap(({ points }) => points).filter((p) => p.filled && p.yRange)")
    assert len(records) == 25 and not bare and filled


def test_columns_that_distinguish_rows_are_shown_if_rows_differ_in_them(two_formats):
    page = two_formats
    head = page.locator("thead .head")
    assert {"KV", "policy", "cache MB"} < set(head.all_text_contents())
    page.locator("select[name=kv_format]").select_option("kv-int8")
    page.get_by_text("2 of 7 rows").wait_for()
    assert "KV" not in head.all_text_contents() and "policy" in head.all_text_contents()
    page.locator("select[name=policy]").select_option("full")
    page.get_by_text("1 of 7 rows").wait_for()
    assert not {"KV", "policy", "cache MB"} & set(head.all_text_contents())
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("searchbox").fill("h2o")
    page.get_by_text("3 of 7 rows").wait_for()
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("7 rows", exact=True).wait_for()


def test_policies_are_not_among_the_sizes_of_the_weights(two_formats):
    plots = [two_formats.locator(f"#plot-{front}") for front in ("size", "speed")]
    assert [plot.is_visible() for plot in plots] == [False, True]  # one recipe has one size
    assert plots[1].locator(".points path").count() == 2  # the full cache in two formats
    assert two_formats.get_by_text("Rows with a cache policy have separate plots below.").is_visible()


@pytest.mark.parametrize(
    "folder", [folder if folder == "mixes" else pytest.param(folder, marks=SLOW) for folder in KEPT]
)
def test_no_two_kept_rows_look_the_same_on_their_page(folder):
    rows = load_records(RESULTS / folder)
    assert not rows.duplicated(["recipe", "model", *IF_ROWS_DIFFER_ON_PAGE]).any()


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
