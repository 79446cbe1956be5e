"""From a model to a plan: its parts add up, it runs, and a refusal names a limit that works."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from qbench.cli.main import cli
from qbench.measure.host.commit import code_version
from qbench.measure.records.kept_placements import PlacementCase, PlacementMetrics
from qbench.measure.records.record import read_files
from qbench.plan.offload import OffloadCase, measured_plan, plan_offload
from qbench.plan.offload.costs import DiskRates
from qbench.plan.offload.layer_times import LayerTimes, resident_model
from qbench.plan.offload.sizes import Sizes
from qbench.plan.offload.solve import solve
from qbench.plan.offload.stream_rates import starts_within
from qbench.plan.offload.tiers import DiskProbe, Overheads, Tiers, seconds_of
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.memory import MemoryPredictor
from qbench.runtime.offload.experts import StreamedExperts
from qbench.runtime.offload.streamer import ReadTimes
from qbench.runtime.offload.units import Unit, streamable_units
from qbench.sources import open_source
from quant.errors import InputError
from quant.models import ModelConfig
from quant.present import present

MEBI = 1 << 20
BASE = 200 * MEBI  # of a process in these tests, on every machine
SLOWDOWN = 1e-10  # seconds of computation per byte that is read
MEASURE, RATES = DiskProbe.measure, DiskProbe.rates


class KnownTimes:
    """Overheads of every model."""

    def __init__(self, source, units, threads, path) -> None:
        pass

    def slowdown(self, batch) -> float:
        return SLOWDOWN

    def overheads(self, batch, context, product_s) -> Overheads:
        return Overheads(1e-4, 1e-3)


@pytest.fixture
def measures(known_machine, monkeypatch):
    """A DiskProbe that measures."""
    monkeypatch.setattr(DiskProbe, "measure", MEASURE)
    monkeypatch.setattr(DiskProbe, "rates", RATES)


@pytest.fixture(autouse=True)
def known_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("qbench.plan.offload.plan.runtime_bytes", lambda threads, small: BASE)

    rates = DiskRates(1e9, latency_s=1e-4)
    monkeypatch.setattr(DiskProbe, "measure", lambda self: None)
    monkeypatch.setattr(DiskProbe, "rates", rates)
    monkeypatch.setattr(DiskProbe, "path", tmp_path)
    monkeypatch.setattr("qbench.plan.offload.plan.LayerTimes", KnownTimes)

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
    assert plan.predicted_tok_s == plan.together / plan.step.step_s and plan.tiers.disk.slowdown_s == SLOWDOWN
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


@pytest.mark.parametrize("batch", [1, 4])
def test_a_limit_that_is_too_small_is_refused_before_anything_is_timed(batch, monkeypatch):
    def fail(*_):
        raise AssertionError("was timed")

    for name in ("plan.product_seconds", "plan.LayerTimes", "tiers.DiskProbe.measure"):
        monkeypatch.setattr(f"qbench.plan.offload.{name}", fail)
    with pytest.raises(InputError, match="is too little for rand:smollm2-135m at 256 tokens"):
        plan_offload("rand:smollm2-135m", OffloadCase(100 * MEBI, 256, batch))
    with pytest.raises(AssertionError, match="was timed"):
        plan_offload("rand:smollm2-135m", OffloadCase(800 * MEBI, 256, batch))


def test_the_plan_can_be_run():
    plan = plan_offload("rand:tiny", OffloadCase(1 << 30, context=16, batch=2))
    run = measured_plan(plan)
    assert run.measured.step_s == pytest.approx(run.measured.compute_s + run.measured.wait_s, rel=0.5)
    assert run.measured_tok_s == 2 / run.measured.step_s and run.ratio == plan.predicted_tok_s / run.measured_tok_s
    assert run.measured.disk_bytes == 0  # all weights fit


def test_the_command_prints_one_object():
    arguments = ["plan", "rand:tiny", "--memory", "1GiB", "--ctx", "64", "--batch", "2", "--goal", "latency", "--json"]
    done = CliRunner().invoke(cli, arguments)
    found = json.loads(done.stdout)
    assert found["together"] == 2 and found["predicted_tok_s"] > 0 and found["measured_tok_s"] is None


def test_a_plan_is_kept_as_a_record(tmp_path, monkeypatch):
    monkeypatch.setattr("qbench.cli.keep_path.code_version", lambda: replace(code_version(), dirty=False))
    file = tmp_path / "plans.jsonl"
    arguments = ["plan", "rand:tiny", "--memory", "1GiB", "--ctx", "64", "--goal", "latency", "--keep", str(file)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    (record,) = read_files([file])
    assert isinstance(record.case, PlacementCase) and isinstance(record.metrics, PlacementMetrics)
    assert record.case.memory_bytes == 1 << 30 and record.metrics.step.step_s > 0 and not record.metrics.rest


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


@pytest.fixture
def file(tmp_path) -> Path:
    """A file to read in place of the units of a model."""
    path = tmp_path / "units"
    path.write_bytes(bytes(4 * MEBI))
    return path


def of_tiny() -> tuple:
    source = open_source("rand:tiny")
    return source, streamable_units(source, ModelConfig.of(source), "auto")


def test_rates_of_a_disk_are_measured(tmp_path, measures, monkeypatch):
    monkeypatch.setattr("qbench.plan.offload.tiers.PROBE_BYTES", 16 << 20)
    with DiskProbe(tmp_path, of_tiny()[1]) as probe:
        probe.measure()
        rates = probe.rates
    assert rates.bytes_s > 0 and rates.latency_s > 0 and not list(tmp_path.iterdir())


def test_a_rate_is_the_median_of_measurements(tmp_path, measures, monkeypatch):
    found = iter([3e9, 1e9, 2e9])
    monkeypatch.setattr("qbench.plan.offload.tiers.PROBE_BYTES", 16 << 20)
    monkeypatch.setattr("qbench.plan.offload.tiers.stream_rate", lambda path, units: next(found))
    with DiskProbe(tmp_path, of_tiny()[1]) as probe:
        for _ in range(3):
            probe.measure()
        rates = probe.rates
    assert rates.bytes_s == 2e9


def test_units_have_places_in_a_file_that_is_shorter_than_all():
    units = [Unit(name, (), size) for name, size in (("a", 8192), ("b", 4096), ("c", 8192))]
    assert starts_within(units, 16384) == {"a": 0, "b": 8192, "c": 0}
    assert starts_within(units, 1 << 20) == {"a": 0, "b": 8192, "c": 12288}


def test_a_folder_that_is_not_there_is_refused(tmp_path, measures):
    with DiskProbe(tmp_path / "none", of_tiny()[1]) as probe, pytest.raises(InputError, match="does not exist"):
        probe.measure()


@pytest.mark.parametrize("context", [8, 600], ids=["short", "beyond the timed context"])
def test_products_and_overheads_add_up_to_the_steps_that_were_timed(context, file, monkeypatch):
    """Two layers take 5 and 8 ms at every context, so that attention costs nothing more per token."""
    source, units = of_tiny()
    times = LayerTimes(source, units, 1, file)
    monkeypatch.setattr(times, "_seconds", lambda batch, context: (0.005, 0.008))
    product_s = {linear.format: 1e-9 for unit in units for linear in unit.linears}
    found = times.overheads(1, context, product_s)
    layers = [seconds_of(unit, product_s) for unit in units if unit.layer is not None]
    head = sum(seconds_of(unit, product_s) for unit in units if unit.layer is None)
    assert times.counts == (1, 2)
    assert layers[1] + found.layer_s == pytest.approx(0.003)
    assert sum(layers) + 2 * found.layer_s + head + found.other_s == pytest.approx(0.008)


@pytest.mark.parametrize("model", ["rand:tiny", "rand:tiny-moe", "rand:tiny-mla-moe"])
def test_a_step_in_memory_takes_the_time_of_all_layers(model, file, monkeypatch):
    """Few layers take 5 ms and many 8; a layer that was not timed takes as long as one of the difference."""
    source = open_source(model)
    config = ModelConfig.of(source)
    units = streamable_units(source, config, "auto")
    times = LayerTimes(source, units, 1, file)
    monkeypatch.setattr(times, "_seconds", lambda batch, context: (0.005, 0.008))
    product_s = {linear.format: 1e-9 for unit in units for linear in unit.linears}
    tiers = Tiers(DiskRates(1e9), product_s, times.overheads(1, 8, product_s))
    sizes = Sizes.of(source, MemoryPredictor(source), units, 8, 1)
    costs = sizes.costs(tiers, 1 << 40)
    stages, _ = sizes.stages(tiers, costs, present(solve(costs)))
    few, many = times.counts
    expected = 0.008 + (config.num_layers - many) * 0.003 / (many - few)
    assert sum(stage.compute_s for stage in stages) == pytest.approx(expected)
    assert tiers.overheads.other_s > 0


def test_experts_are_timed_by_the_code_of_a_run(file):
    source = open_source("rand:tiny-moe")
    model = resident_model(source, RunOptions(), file, lambda: None)
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(tokens), load_model(source, RunOptions())(tokens))
    experts = present(model.weights.experts)
    assert all(type(block.feed_forward) is StreamedExperts for block in model.blocks) and experts.misses > 0
    missed = experts.misses
    model(tokens)
    assert experts.misses == missed and experts.hits > 0  # as experts that stay


def test_layers_are_timed(file):
    source, units = of_tiny()
    times = LayerTimes(source, units, 1, file)
    read = times.passing.streamer.read_bytes
    few, many = times._seconds(2, 8)
    assert few > 0 and many > 0 and times.passing.streamer.read_bytes == read  # as layers that stay
    assert 0 <= times.slowdown(2) < 1e-3
    assert times.passing.streamer.read_bytes > read


def test_reads_slow_down_simultaneous_computation(file, monkeypatch):
    """A step takes 4 ms, and 10 while 3 MB are read, of which it waits 4: 6 ms of it computed, and 1.8 MB came then."""
    times = LayerTimes(*of_tiny(), 1, file)
    go_on, stay, now = times.passing.go_on, times.passing.stay, ReadTimes(0, 0.0, 0.0)

    def step_seconds(model, cache, tokens) -> float:
        nonlocal now
        assert times._before in (go_on, stay)
        if times._before == stay:
            return 0.004
        now = ReadTimes(now.read_bytes + 3_000_000, now.waited_s + 0.004, 0.0)
        return 0.010

    monkeypatch.setattr("qbench.plan.offload.layer_times._step_seconds", step_seconds)
    monkeypatch.setattr(type(times.passing.streamer), "times", property(lambda self: now))
    assert times.slowdown(1) == pytest.approx(0.002 / 1_800_000)
    assert times._before == stay
