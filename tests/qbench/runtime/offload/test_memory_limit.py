"""The process stays within its limit for real: the kernel would end it, and counts its page cache, too."""

import json
import sys

import pytest
from support.artifact import write_artifact
from support.memory_limit import run_within

from qbench.sources import open_source
from quant.recipes import get_recipe

MEBI = 1 << 20
# Python and torch take 250 to 330 MiB, which differs from run to run by tens of MiB.
LIMIT, VARIES = 460 * MEBI, 32 * MEBI
PARENT = 400 * MEBI  # room for the process that starts the one with the model
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
BENCH = (sys.executable, "-m", "qbench.cli.main", "bench", "-p", "8", "-n", "4", "-r", "1", "--json")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """143 MB of weights: LIMIT has room for a part of them."""
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    return str(write_artifact(open_source("rand:smollm2-135m"), path, recipe=get_recipe("q8_0")))


def test_a_model_runs_within_a_limit_that_it_does_not_fit(model):
    done = run_within(LIMIT, [sys.executable, "-c", RUN, model, str(LIMIT)])
    assert done.returncode == 0, done.stderr
    streamed_bytes, peak_bytes = json.loads(done.stdout)
    assert streamed_bytes > 0
    assert done.peak_bytes <= LIMIT and peak_bytes <= LIMIT


@pytest.mark.exhaustive  # it measures the machine
def test_bench_stays_within_the_limit_and_records_its_shares(model):
    limit = LIMIT - VARIES  # its worker imports less
    done = run_within(limit + PARENT, [*BENCH, model, "--memory", f"{limit // MEBI}MiB"])
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["offload"]["streamed_bytes"] == row["roofline"]["tg_bytes"]["linears"] > 0
    assert row["peak_rss_bytes"] <= limit


@pytest.mark.exhaustive  # two more processes
def test_the_smallest_limit_that_is_named_works(model):
    done = run_within(1 << 30, [*BENCH, model, "--memory", "100MiB"])
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if "--memory 100MiB is too little" in line]
    smallest = int(line.rpartition(" ")[2].removesuffix("MiB")) * MEBI + VARIES
    again = run_within(smallest + PARENT, [*BENCH, model, "--memory", f"{smallest // MEBI}MiB"])
    assert again.returncode == 0, again.stderr
