"""The page in headless Chromium: it draws both scatters, sorts, says nothing on the console and asks no network."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from support.sample_records import failed_record, make_record, sweep_records, write_records

from qbench.report import load_records
from qbench.report.page import render_page
from qbench.report.table import build_tables

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=20000"),
    *("--host-resolver-rules=MAP * ~NOTFOUND",),
]

# Runs after the page's own scripts: waits for the plots, then tells what a reader sees.
PROBE = """<script>
const seen = setInterval(() => {
  if (!document.body.dataset.drawn) return;
  clearInterval(seen);
  const boxes = (plot) => [...plot.querySelectorAll(".annotation-text")].map((node) => node.getBoundingClientRect());
  const overlaps = (plot) => boxes(plot).flatMap((a, i, all) => all.slice(i + 1).filter((b) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length;
  const sortBy = (column) => { document.querySelectorAll("thead button")[column].click();
    return [...document.querySelectorAll("tbody th")].map((cell) => cell.textContent); };
  const plots = [...document.querySelectorAll(".plot")];
  const told = { plots: plots.map((plot) => ({ markers: plot.querySelectorAll(".points path").length,
      names: boxes(plot).length, overlaps: overlaps(plot) })),
    wider: document.documentElement.scrollWidth - innerWidth, by_size: sortBy(2), by_size_down: sortBy(2) };
  const node = document.createElement("pre");
  node.id = "told";
  node.textContent = JSON.stringify(told);
  document.body.append(node);
}, 50);
</script></body>"""


def page_of(tmp_path, records) -> str:
    return render_page(build_tables(load_records(write_records(tmp_path / "records.jsonl", records))))


def browse(tmp_path, html: str, width: int) -> tuple[dict, list[str]]:
    """What the probe told, and the lines of the console."""
    page = tmp_path / "page.html"
    page.write_text(html.replace("</body>", PROBE), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1200"]
    done = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    told = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert told, f"the page did not draw; console: {console}"
    return json.loads(told.group(1)), console


@needs_chromium
@pytest.mark.parametrize("width", [1360, 500], ids=["wide", "phone"])
def test_page_draws_and_sorts(tmp_path, width):
    told, console = browse(tmp_path, page_of(tmp_path, sweep_records()), width)
    assert not console
    assert [plot["markers"] for plot in told["plots"]] == [8, 8] and [plot["names"] for plot in told["plots"]] == [8, 8]
    assert [plot["overlaps"] for plot in told["plots"]] == [0, 0]
    assert told["wider"] <= 0, "the page itself does not scroll sideways"
    assert told["by_size"][0] == "rtn-w4g128" and told["by_size"][-1] == "bf16"
    assert told["by_size_down"] == told["by_size"][::-1]


@needs_chromium
def test_page_of_zeros_failures_and_hostile_names(tmp_path):
    records = [
        make_record("bf16", kld={"mean": 0.0, "p99": 0.0}, kld_interval=[0.0, 0.0], model="</script><b>x"),
        make_record("q8_0", tg_tok_s=None, model="</script><b>x"),
        failed_record("q4_0", "<img src=x onerror=alert(1)>"),
    ]
    told, console = browse(tmp_path, page_of(tmp_path, records), 1000)
    assert not console
    assert [plot["markers"] for plot in told["plots"]] == [2, 1]


class References(HTMLParser):
    """Everything that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.found += [value for name, value in attrs if name in ("src", "href") and not value.startswith("data:")]


def test_page_is_self_contained_and_small_enough(tmp_path):
    html = page_of(tmp_path, sweep_records())
    references = References()
    references.feed(html)
    assert references.found == []
    assert len(html.encode()) < 6_000_000
