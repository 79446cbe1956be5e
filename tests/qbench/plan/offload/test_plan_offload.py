"""From a model to a plan: its parts add up, it runs, and a refusal names a limit that works."""

import json
import re

import pytest
from click.testing import CliRunner

from qbench.cli.main import cli
from qbench.plan.offload import OffloadCase, measured_rate, plan_offload
from qbench.plan.offload.costs import DiskRates
from qbench.plan.offload.tiers import measure_disk
from quant.errors import InputError

MEBI = 1 << 20
BASE = 200 * MEBI  # of a process in these tests, on every machine


@pytest.fixture(autouse=True)
def known_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("qbench.plan.offload.plan.runtime_bytes", lambda threads, small: BASE)

    rates = DiskRates(1e9, latency_s=1e-4, cpu_s=1e-10), 2e10
    monkeypatch.setattr("qbench.plan.offload.plan.measure_rates", lambda disk, threads: rates)

    def product_seconds(linears, batch) -> dict[str, float]:
        return {linear.format: 1e-10 * (1 + batch / 8) for linear in linears}

    monkeypatch.setattr("qbench.plan.offload.plan.product_seconds", product_seconds)


def smallest_limit(context: int) -> int:
    """Bytes that the refusal of a limit names."""
    with pytest.raises(InputError, match="is too little for rand:smollm2-135m") as error:
        plan_offload("rand:smollm2-135m", OffloadCase(100 * MEBI, context))
    return int(re.findall(r"works is (\d+)MiB", str(error.value))[0]) * MEBI


@pytest.mark.parametrize("model", ["rand:smollm2-135m", "rand:tiny-moe", "ref:mla-moe"])
@pytest.mark.parametrize("goal", ["throughput", "latency"])
def test_parts_stay_within_the_limit(model, goal):
    limit = (400 if "smol" in model else 268) * MEBI
    plan = plan_offload(model, OffloadCase(limit, context=256, batch=4, goal=goal))
    parts = plan.fixed_bytes + plan.pinned_bytes + plan.ring_bytes + plan.kv_ram_bytes
    assert parts <= limit
    assert plan.predicted_tok_s == plan.together / plan.step.step_s
    assert plan.together == 4 if goal == "latency" else plan.together in (1, 2, 4)
    assert (plan.expert_share is None) == ("smol" in model)


def test_more_memory_is_never_slower():
    rates = [
        plan_offload("rand:smollm2-135m", OffloadCase(size * MEBI, 256, goal="latency")).predicted_tok_s
        for size in (400, 440, 500, 620)
    ]
    assert rates == sorted(rates) and rates[0] < rates[-1]


def test_keys_and_values_spill_only_if_they_must():
    plan = plan_offload("rand:smollm2-135m", OffloadCase(440 * MEBI, 1024))
    assert plan.kv_disk_bytes == 0 and plan.streamed_layers > 0
    assert plan_offload("rand:smollm2-135m", OffloadCase(smallest_limit(1024), 1024)).kv_disk_bytes > 0


def test_a_limit_that_is_too_small_names_one_that_works():
    smallest = smallest_limit(256)
    plan_offload("rand:smollm2-135m", OffloadCase(smallest, 256))
    with pytest.raises(InputError):
        plan_offload("rand:smollm2-135m", OffloadCase(smallest - MEBI, 256))


def test_the_plan_can_be_run():
    plan = plan_offload("rand:tiny", OffloadCase(1 << 30, context=16, batch=2))
    assert measured_rate(plan) > 0


def test_the_command_prints_one_object():
    arguments = ["plan", "rand:tiny", "--memory", "1GiB", "--ctx", "64", "--batch", "2", "--goal", "latency", "--json"]
    done = CliRunner().invoke(cli, arguments)
    found = json.loads(done.stdout)
    assert found["together"] == 2 and found["predicted_tok_s"] > 0 and found["measured_tok_s"] is None


@pytest.mark.parametrize(
    "options, message",
    [
        (["--goal", "latency"], "--goal needs --memory"),
        (["--disk", "."], "--disk goes with --goal"),
        (["--goal", "latency", "--memory", "1GiB", "--recipe", "q4_0"], "plans for a model as stored"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    done = CliRunner().invoke(cli, ["plan", "rand:tiny", *options])
    assert done.exit_code == 2 and message in done.output


def test_rates_of_a_disk_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("qbench.plan.offload.tiers.PROBE_BYTES", 16 << 20)
    rates = measure_disk(tmp_path)
    assert all(rate > 0 for rate in rates[::2]) and not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        measure_disk(tmp_path / "none")
