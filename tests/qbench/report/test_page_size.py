import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from support.measured_records import measured_sweep
from support.sample_records import write_records

from qbench.report import write_page
from qbench.report.columns import COLUMNS
from qbench.report.page import render_page
from qbench.store import load_records

LIMIT = 6_000_000


class References(HTMLParser):
    """Everything that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.found += [
            value for name, value in attrs if name in ("src", "href") and not value.startswith(("data:", "#"))
        ]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return write_records(tmp_path_factory.mktemp("records") / "records.jsonl", measured_sweep())


def about(html: str) -> dict:
    return json.loads(re.search(r'id="about">(.*?)</script>', html, re.DOTALL).group(1))


def test_page_is_self_contained_and_has_every_record(records, tmp_path):
    html = write_page(records, tmp_path / "page.html").read_text()
    references = References()
    references.feed(html)
    assert references.found == []
    assert len(html.encode()) < 300_000 and sorted(about(html)["rows_of_records"]) == list(range(8))


def test_a_hundred_thousand_rows_of_noise_fit(records):
    rng, rows = np.random.default_rng(3), 100_000
    frame = load_records(records)
    frame = frame.loc[np.arange(rows) % len(frame)].reset_index(drop=True)
    for name in frame.columns[frame.dtypes == np.float64].drop("bits_per_weight"):
        frame[name] *= rng.lognormal(0, 0.3, rows)
    frame["key"] = [f"{key:016x}" for key in rng.integers(0, 2**63, rows)]
    frame["time"] = pd.date_range("2026-01-01", periods=rows, freq="7s").strftime("%Y-%m-%dT%H:%M:%S")
    lines = ((row, rng.bytes(2000).hex().encode()) for row in range(rows))
    html = render_page(frame, lines)
    assert len(html.encode()) < LIMIT
    told = about(html)
    assert 0 < told["records"] < 1000 and told["key_digits"] < 16
    # The columns that the page shows by default are there.
    assert not {column.heading for column in COLUMNS if column.on_page} & set(told["left_out"])
