"""The page of a hundred thousand records: `pytest --benchmark-only tests/qbench/report/test_bench_report.py`.

`cpu_s` of the command and all its threads is its cost even if other programs keep the machine busy: first from the
records, then from the kept rows.
"""

import resource
import subprocess
import sys
import time

import pytest
from support.many_records import many_records

from qbench.store.kept_rows import SETTLED_S

ROWS, PAGE_BYTES = 100_000, 6_000_000


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "records.jsonl"
    with open(path, "w") as file:
        file.writelines(many_records(ROWS))
    time.sleep(SETTLED_S)  # rows that may still be written are not kept
    return path


@pytest.mark.parametrize("kept", [False, True], ids=["of records", "of what is kept"])
def test_page(benchmark, records, tmp_path, monkeypatch, kept):
    monkeypatch.setenv("XDG_CACHE_HOME", str(records.with_name(f"cache-{kept}")))
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "qbench.cli.main", "report", str(records), "--html", str(page)]

    def report() -> None:
        subprocess.run(command, check=True, capture_output=True)

    if kept:
        report()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    benchmark.pedantic(report, rounds=1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    benchmark.extra_info |= {"cpu_s": round(cpu_s, 2), "page_bytes": page.stat().st_size}
    assert page.stat().st_size < PAGE_BYTES
