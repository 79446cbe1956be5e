"""The process stays within its limit for real: the kernel would end it, and counts its page cache, too."""

import json
import re
import sys
from collections.abc import Callable, Sequence

import pytest
from support.artifact import write_artifact
from support.memory_limit import Limited, run_within

from qbench.sources import open_source
from quant.recipes import get_recipe

MEBI = 1 << 20
# Python and torch take 250 to 330 MiB, and two processes differ by tens of MiB: the limit comes from a refusal.
VARIES = 32 * MEBI
TOO_SMALL = 100 * MEBI
REFUSED = re.compile(r"--memory \d+MiB is too little .* the smallest that works here is (\d+)MiB")
RUN = """
import json, sys, torch
from qbench.measure.host.memory import peak_rss_bytes
from qbench.run_options import RunOptions
from qbench.runtime import load_model
from qbench.sources import open_source
model = load_model(open_source(sys.argv[1]), RunOptions(memory_bytes=int(sys.argv[2]), threads=1))
cache = model.new_cache(1, 16)
for tokens in (torch.ones(1, 8, dtype=torch.int64), *[torch.ones(1, 1, dtype=torch.int64)] * 4):
    model(tokens, cache)
print(json.dumps([model.weights.shares.streamed_bytes, peak_rss_bytes()]))
"""
PYTHON = (sys.executable, "-c", RUN)
BENCH = (sys.executable, "-m", "qbench.cli.main", "bench", "-p", "8", "-n", "4", "-r", "1", "--json")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """143 MB of weights, which is more than a layer and VARIES."""
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    return str(write_artifact(open_source("rand:smollm2-135m"), path, recipe=get_recipe("q8_0")))


def run_at_smallest(command: Callable[[int], Sequence[str]]) -> tuple[Limited, int]:
    """The process at VARIES above the smallest limit that a refusal names, and that limit in bytes.

    command   of a limit in bytes
    A process that has grown since the one that was refused is refused, too, and names a larger limit.
    """
    limit, done = 0, run_within(1 << 30, command(TOO_SMALL))
    for _ in range(3):
        refused = REFUSED.search(done.stderr)
        if done.returncode == 0 or refused is None:
            break
        assert done.stdout == ""
        limit = int(refused[1]) * MEBI + VARIES
        done = run_within(limit, command(limit))
    assert done.returncode == 0, done.stderr
    return done, limit


def test_a_model_runs_within_a_limit_that_it_does_not_fit(model):
    done, limit = run_at_smallest(lambda limit: [*PYTHON, model, str(limit)])
    streamed_bytes, peak_bytes = json.loads(done.stdout)
    assert streamed_bytes > 0
    assert done.peak_bytes <= limit and peak_bytes <= limit


@pytest.mark.exhaustive  # it measures the machine
def test_bench_stays_within_the_smallest_limit_and_records_its_shares(model):
    done, limit = run_at_smallest(lambda limit: [*BENCH, model, "--memory", f"{limit // MEBI}MiB"])
    row = json.loads(done.stdout)
    assert row["offload"]["streamed_bytes"] == row["roofline"]["tg_bytes"]["linears"] > 0
    assert row["peak_rss_bytes"] <= limit and done.peak_bytes <= limit
