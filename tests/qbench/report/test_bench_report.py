"""The page of a hundred thousand records: `pytest --benchmark-only tests/qbench/report/test_bench_report.py`.

`cpu_s` of the command and all its threads is its cost even if other programs keep the machine busy: first from the
records, then from the kept rows.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
import pytest
from support.measured_records import measured_sweep

from qbench.store.kept_rows import SETTLED_S


def many_records(rows: int) -> Iterator[str]:
    """Lines of records, about 3 kB each."""
    rng, sweep = np.random.default_rng(3), measured_sweep()
    keys = rng.integers(0, 2**63, rows)
    for i, noise in enumerate(rng.lognormal(0, 0.3, (rows, 4))):
        record = sweep[i % len(sweep)]
        case = record["case"] | {"model": f"model-{i // 800}", "seed": i // len(sweep)}
        metrics = record["metrics"] | _figures(record["metrics"], *noise.tolist())
        time = datetime(2026, 1, 1) + timedelta(seconds=7 * i)
        own = {"key": f"{keys[i]:016x}", "case": case, "metrics": metrics, "time": time.isoformat()}
        yield json.dumps(record | own) + "\n"


def _figures(metrics: dict, quality: float, divergence: float, prefill: float, decode: float) -> dict:
    perplexity, kld = quality * metrics["perplexity"], {k: divergence * v for k, v in metrics["kld"].items()}
    speeds = {"pp_tok_s": prefill * metrics["pp_tok_s"], "tg_tok_s": decode * metrics["tg_tok_s"]}
    return speeds | {
        "perplexity": perplexity,
        "perplexity_interval": [0.98 * perplexity, 1.02 * perplexity],
        "kld": kld,
        "kld_interval": [0.9 * kld["mean"], 1.1 * kld["mean"]],
        "spread": {name: {"min": 0.96 * speed, "max": 1.02 * speed} for name, speed in speeds.items()},
    }


ROWS, PAGE_BYTES = 100_000, 6_000_000


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "records.jsonl"
    with open(path, "w") as file:
        file.writelines(many_records(ROWS))
    time.sleep(SETTLED_S)  # rows that may still be written are not kept
    return path


@pytest.mark.parametrize("kept", [False, True], ids=["of records", "of what is kept"])
def test_a_page_of_many_rows_is_timed(benchmark, records, tmp_path, monkeypatch, kept):
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
