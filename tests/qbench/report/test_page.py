"""The page in headless Chromium: a reader's views, clicks and links."""

import re

import pytest
from support.browser import WatchedPage
from support.measured_records import measured_record, measured_sweep
from support.sample_records import SWEEP, failed_record, make_record, sweep_records, write_records

from qbench.report import load_records
from qbench.report.columns import columns_of
from qbench.report.page import render_page
from qbench.report.table import build_tables

MINUS = "\u2212"
DASH = "\u2009\u2013\u2009"  # between two ends, thin spaces around it
OVERLAPS = """plot => {
  const boxes = [...plot.querySelectorAll(".plot-name")].map((node) => node.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length; }"""
OUTSIDE = """([plot, selector]) => {
  const area = plot.querySelector(".area").getBoundingClientRect();
  return [...plot.querySelectorAll(selector)].map((node) => node.getBoundingClientRect()).map((box) =>
    Math.max(area.left - box.left, box.right - area.right, area.top - box.top, box.bottom - area.bottom)); }"""
PLACE = "(({tagName, type, dataset}) => [tagName, type || '', dataset.key || ''].join())(document.activeElement)"
GROUND = "getComputedStyle(document.body).backgroundColor"
SLOW = pytest.mark.exhaustive("a page of its own takes seconds; the main views are in every run")


@pytest.fixture(scope="module")
def sweep(opened):
    return opened([*sweep_records()[:-1], make_record("rtn-w4g128", size_bytes=None)])


@pytest.fixture(scope="module")
def measured(opened):
    """A sweep with raw samples and blocks, a row of another model, machine and protocol, and one that failed."""
    other = measured_record("q4_0", model="ref:other", machine="another", window=2048)
    other["metrics"]["protocol"] |= {"name": "gptq-2048", "hash": "beef", "window": 2048}
    return opened([*measured_sweep(), other, failed_record("q4_0", "killed by SIGKILL") | {"key": "failed"}])


def drawn(page):
    page.wait_for_selector("body[data-drawn]")
    return page


def names(page) -> list[str]:
    return page.locator("tbody th[scope=row] > a").all_text_contents()


def cells(page, heading: str) -> list[str]:
    """The first line of each cell below a heading."""
    headings = page.locator("thead .head").all_text_contents()
    below = page.locator(f"tbody tr[data-row] > :nth-child({headings.index(heading) + 2})")
    return [text.split("\n")[0] for text in below.all_inner_texts()]


@pytest.fixture(scope="module")
def phone(opened):
    return opened(measured_sweep(), width=360, scheme="dark")


@pytest.fixture(scope="module")
def desk(opened):
    return opened(sweep_records())


@pytest.mark.parametrize(("window", "width"), [("desk", 1360), pytest.param("phone", 360, marks=SLOW)])
def test_three_scatters_with_names_apart_and_nothing_sideways(request, window, width):
    page = drawn(request.getfixturevalue(window).page)
    plots = page.locator(".plot").all()
    assert [plot.locator(".points path").count() for plot in plots] == [8, 8, 8]
    assert [plot.locator(".plot-name").count() for plot in plots] == [8, 8, 8]
    assert [plot.evaluate(OVERLAPS) for plot in plots] == [0, 0, 0]
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_cells_read_as_in_the_markdown(opened, tmp_path):
    # Without q6_k, one of whose speeds ends in a half, which Python rounds to even and browsers up.
    records = [make_record(recipe) for recipe in ("bf16", "q8_0", "rtn-w4g128")]
    records += [make_record("q4_0", tg_tok_s=31.37, kld=None, kld_interval=None)]
    (table,) = build_tables(load_records(write_records(tmp_path / "records.jsonl", records)))
    shown = [column for column in columns_of(table) if column.key != "pareto"]
    page = opened(records, "#/?columns=" + ",".join(column.key for column in shown)).page
    rows = page.locator("tbody tr[data-row]").evaluate_all(
        "rows => rows.map(({ cells }) => [...cells].slice(1).map(({ childNodes }) => "
        "[...childNodes].map((node) => node.textContent)))"
    )
    assert page.locator("thead .head").all_text_contents() == [column.heading for column in shown]
    written = zip(*(column.cells(table.columns) for column in shown), strict=True)
    for cells, row in zip(rows, written, strict=True):
        read = [f"{cell[0]} [{', '.join(cell[1].split(DASH))}]" if len(cell) > 1 else cell[0] for cell in cells]
        assert read == list(row)


def test_sorting_by_a_column_and_back_with_the_missing_last(sweep):
    page = sweep.at("#/")
    page.get_by_role("button", name="size MB").click()
    rising = names(page)
    assert rising[0] == "q4_k_m" and rising[-2:] == ["bf16", "rtn-w4g128"]
    assert page.locator("th[aria-sort=ascending]").inner_text() == "size MB"
    page.get_by_role("button", name="size MB").press("Enter")
    assert names(page) == [*rising[-2::-1], "rtn-w4g128"] and page.locator("th[aria-sort=descending]").count() == 1
    page.get_by_role("button", name="recipe").click()
    assert names(page) == ["bf16", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "rtn-w4g128", "rtn-w8"]


def test_filters_narrow_table_and_scatters_and_stay_in_the_address(sweep):
    page = drawn(sweep.at("#/"))
    page.get_by_role("searchbox").fill("q5 mix")
    page.get_by_text("1 of 7 rows").wait_for()
    assert names(page) == ["q5_k_m"]
    page.wait_for_function("document.querySelectorAll('#plot-size .points path').length === 1")
    page.reload()
    page.get_by_text("1 of 7 rows").wait_for()
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Recipe family").select_option("rtn")
    assert sorted(names(page)) == ["rtn-w4g128", "rtn-w8"]
    page.wait_for_function("document.querySelectorAll('#plot-speed .points path').length === 2")
    assert page.url.endswith("#/?family=rtn")


@SLOW
def test_columns_on_demand(sweep):
    page = sweep.at("#/")
    assert "p99 KLD" not in page.locator("thead").inner_text()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="p99 KLD").check()
    assert cells(page, "p99 KLD")[0] == "8.19e-05"
    page.get_by_role("checkbox", name="size MB").uncheck()
    assert "size MB" not in page.locator("thead").inner_text()


def test_the_keyboard_reaches_search_filters_sort_pick_and_rows(sweep):
    page, reached = sweep.at("#/"), set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(PLACE))
    assert {"INPUT,search,", "SELECT,select-one,", "BUTTON,button,kld_mean", "INPUT,checkbox,", "A,,"} <= reached


@SLOW
def test_the_theme_can_be_chosen(sweep):
    page = sweep.at("#/nowhere")
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(GROUND)
    page.get_by_role("button", name="Theme: as the system").click()
    assert page.evaluate(GROUND) != dark
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(GROUND) == dark
    page.get_by_role("button", name="Theme: dark").click()
    page.emulate_media(color_scheme="light")


def test_links_lead_to_the_row_its_model_and_its_recipe(measured):
    page = measured.at("#/")
    page.get_by_role("link", name="q8_0").click()
    page.locator("h1", has_text="q8_0 on ref:llama").wait_for()
    told = page.locator("main").inner_text()
    for fact in ("windows-1024", "f00d", "Some Processor", "0123456789", "cpu-q8_0[avx512_vnni]", "qbench sweep"):
        assert fact in told
    assert page.locator(".strip-dot").count() == 7 + 7 + 24 + 24
    page.locator(".crumbs").get_by_role("link", name="ref:llama").click()
    page.get_by_text("9 of 10 rows").wait_for()
    page.go_back()
    page.locator("h1").get_by_role("link", name="q8_0").click()
    page.get_by_text("1 of 10 rows").wait_for()
    page.get_by_text("Passport: 1 row").click()
    assert "Some Processor" in page.locator(".passport").inner_text()


def test_a_failed_row_shows_its_reason(measured):
    page = measured.at("#/?sort=kld_mean")
    page.get_by_role("row", name="failed").get_by_role("link", name="q4_0").click()
    page.get_by_text("This case failed: killed by SIGKILL").wait_for()


def test_two_picked_rows_are_compared(measured):
    page = measured.at("#/model/ref%3Allama")
    page.get_by_label("compare bf16 on ref:llama").check()
    page.get_by_label("compare q6_k on ref:llama").check()
    page.get_by_role("link", name="Compare", exact=True).click()
    page.locator("h1", has_text="A bf16 → B q6_k").wait_for()
    verdicts = dict(zip(names_of_metrics(page), page.locator(".verdict").all_inner_texts(), strict=True))
    assert "worse" in verdicts["mean KLD"] and "better" in verdicts["size MB"]
    assert verdicts["tg tok/s"] == "open"  # measured in one process each
    page.get_by_role("link", name="Swap A and B").click()
    page.locator("h1", has_text="A q6_k → B bf16").wait_for()


def names_of_metrics(page) -> list[str]:
    return page.locator("tbody th").all_text_contents()


@SLOW
def test_unlike_protocols_machines_and_models_do_not_compare_and_name_their_difference(measured):
    page = measured.at("#/compare/ref:llama-q8_0-a1b2c3-f00d/ref:other-q4_0-another-f00d")
    assert page.locator(".failure").all_inner_texts() == [
        "Not comparable in quality: the protocols differ in name (windows-1024 and gptq-2048), window (none and 2048).",
        "Not comparable in speed and memory: the machines differ (a1b2c3 and another).",
        "Not comparable in size: the models differ (ref:llama and ref:other).",
    ]
    assert names_of_metrics(page) == ["arithmetic acc %"]


@SLOW
def test_rows_without_their_records_are_marked_and_compared_from_the_table(browser, tmp_path):
    records = [measured_record("bf16"), measured_record("q4_0")]
    frame = load_records(write_records(tmp_path / "records.jsonl", records))
    (tmp_path / "page.html").write_text(render_page(frame, records=[]))
    bare = WatchedPage(browser, tmp_path / "page.html", f"#/compare/{records[0]['key']}/{records[1]['key']}")
    told = bare.page.locator("main").inner_text()
    assert "no room for the record of A and B" in told and "not paired" in told and "no samples here" in told
    assert "▼ worse" in bare.page.get_by_role("row", name="mean KLD").inner_text()
    told = bare.at(f"#/row/{records[1]['key']}").locator("main").inner_text()
    assert "windows-1024" in told and "0 of its 2 rows" in told
    bare.close()


@SLOW
def test_every_page_fits_a_phone_in_the_dark(phone):
    rows = [f"ref:llama-{recipe}-a1b2c3-f00d" for recipe in SWEEP]
    for address in ("#/", "#/model/ref%3Allama", f"#/row/{rows[0]}", f"#/compare/{rows[0]}/{rows[1]}", "#/nowhere"):
        page = phone.at(address)
        assert page.evaluate("document.documentElement.scrollWidth") == 360, address
    assert max(page.evaluate(GROUND + ".match(/\\d+/g).map(Number)")) < 40


def test_zeros_and_hostile_names(opened):
    hostile = "</script><b>x"
    records = [
        make_record("bf16", kld={"mean": 0.0, "p99": 0.0}, kld_interval=[0.0, 0.0], model=hostile),
        make_record("q8_0", tg_tok_s=None, model=hostile),
        failed_record("q4_0", "<img src=x onerror=alert(1)>"),
    ]
    records[1]["case"]["recipe"] = "<i>q/8?#%</i>"
    page = drawn(opened(records).page)
    plots = page.locator(".plot").all()
    assert [plot.locator(".points path").count() for plot in plots] == [2, 0, 2]
    assert [plot.is_visible() for plot in plots] == [True, False, True]  # a single speed shows no trade
    assert plots[0].locator(".plot-name", has_text="<i>q/8?#%</i>").count() == 1
    page.get_by_role("link", name="<i>q/8?#%</i>").click()
    page.locator("h1").get_by_role("link", name="<i>q/8?#%</i>").click()
    page.get_by_text("1 of 3 rows").wait_for()
    assert page.locator("main b, main img").count() == 0


@SLOW
def test_thousands_of_rows_scroll_with_few_in_the_document(opened):
    page = drawn(opened([make_record("q8_0", model=f"model-{i}") for i in range(3000)]).page)
    assert page.locator("tbody tr[data-row]").count() < 80
    page.locator(".scroll").evaluate("node => node.scrollTo(0, node.scrollHeight)")
    page.locator("tbody tr[data-row='2999']").wait_for()
    assert page.locator("tbody tr[data-row]").count() < 80
    assert page.get_by_text("6 largest of 3000 groups").count() == 1


@pytest.mark.parametrize(
    "row, expected",
    [
        ({"recipe": "bf16", "kv_format": "f32", "cache": "dynamic", "policy": "full"}, ""),
        ({"recipe": "bf16", "kv_format": "kv-int8", "cache": "dynamic", "policy": "window:64"}, "kv-int8 window:64"),
        ({"recipe": "q4_k_m+kv-fp8", "kv_format": "kv-fp8", "cache": None, "policy": None}, ""),
        ({"recipe": "bf16", "kv_format": None, "cache": "paged", "policy": "full"}, "paged"),
    ],
)
def test_rows_of_other_caches_bear_their_names(desk, row, expected):
    assert desk.page.evaluate("row => keptAs({ value: (key) => row[key] }, 0)", row) == expected


@SLOW
def test_a_page_without_policies_has_no_plots_of_them(desk):
    assert not drawn(desk.at("#/")).locator(".policies").is_visible()


@SLOW
def test_a_dark_page_is_printed_light_and_without_its_controls(desk):
    page = drawn(desk.at("#/"))
    light = page.evaluate(GROUND)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(GROUND)
    assert dark != light
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate(GROUND) != dark
    assert not any(page.locator(control).first.is_visible() for control in ("#theme", ".filters", "input"))
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert page.evaluate(GROUND) == dark and page.locator("#theme").is_visible()
    page.emulate_media(color_scheme="light")  # others read this window


def outside(plot, selector: str) -> list[float]:
    """How many pixels each of these elements reaches out of the plot area; negative inside."""
    return plot.evaluate(f"plot => ({OUTSIDE})([plot, {selector!r}])")


@SLOW
@pytest.mark.parametrize("klds", [(9.1e-6, 4.8e-5), (3.7e-6, 6.7e-5), (3.7e-6, 5e-4)], ids=str)
def test_a_log_axis_of_two_rows_names_numbers_and_has_room_for_whiskers(opened, klds):
    records = [
        make_record(recipe, kld={"mean": kld}, kld_interval=[0.5 * kld, 2 * kld])
        for recipe, kld in zip(("bf16", "q8_0"), klds, strict=True)
    ]
    plot = drawn(opened(records).page).locator(".plot").first
    labels = plot.locator(".ytick text").all_text_contents()
    values = [float(re.sub("^10(?=-)", "1e", label.replace("\u200b", "").replace(MINUS, "-"))) for label in labels]
    assert len(values) > 1 and values == sorted(set(values))
    whiskers = outside(plot, ".yerror")
    assert len(whiskers) == 2 and max(whiskers) <= 0


@SLOW
def test_each_name_of_many_rows_is_written_once_and_not_over_the_numbers_of_an_axis(opened):
    records = [
        make_record(recipe, size_bytes=int(SWEEP[recipe][0] * 6e5 * 1.01**i), kld={"mean": SWEEP[recipe][2] * 1.1**i})
        | {"key": f"{recipe}-{i}", "time": f"2026-01-01T00:00:{i:02}+00:00"}
        for i in range(20)
        for recipe in SWEEP
    ]
    plot = drawn(opened(records).page).locator(".plot").first
    assert plot.locator(".points path").count() == len(records)
    names_written = plot.locator(".plot-name").all_text_contents()
    assert names_written and len(names_written) == len(set(names_written))
    assert max(outside(plot, ".plot-name")) <= 4
