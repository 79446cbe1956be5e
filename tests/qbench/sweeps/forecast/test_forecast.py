import json
from dataclasses import replace

import pytest
from support.documents import append_record, make_record

from qbench.cli.sweep_forecast import time_text
from qbench.measure.host.machine import machine
from qbench.run.work import QualityWork, SpeedWork, TasksWork
from qbench.sweeps.forecast import forecast as forecast_module
from qbench.sweeps.forecast.forecast import forecast_sweep
from qbench.sweeps.job import ModelProbe, ProbeJob
from qbench.sweeps.jobs import probe
from qbench.sweeps.suite.cases import make_cases, select_points
from qbench.sweeps.suite.rules import parse_only
from qbench.sweeps.suite.suite import Suite
from qbench.sweeps.sweep import Selection

SUITE = Suite.of("test", ("ref:llama",), ("bf16", "q8_0"), eval=QualityWork(max_windows=2), bench=SpeedWork(pp=8, tg=4))
PROBE = ModelProbe(load_s=1.0, token_s=0.01, judged_token_s=0.02, step_s=0.1, quantize_s={"bf16": 5.0})


@pytest.fixture(autouse=True)
def probed(monkeypatch):
    """Results of a probe, and the models that it was asked for."""
    asked = []

    def run_job(job, log, **how):
        asked.append((job.arguments["model"], job.arguments["recipes"]))
        return PROBE.to_json()

    monkeypatch.setattr(forecast_module, "run_job", run_job)
    return asked


def foresee(tmp_path, suite=SUITE, kept="none", **selection):
    return forecast_sweep(suite, tmp_path / "run", Selection(**selection), tmp_path / kept)


def measure(records, suite, index, **metrics) -> None:
    records.parent.mkdir(exist_ok=True)
    append_record(records, make_record(make_cases(suite, select_points(suite))[index].to_json(), metrics))


def test_without_any_record_a_probe_decides(tmp_path, probed):
    told = foresee(tmp_path)
    assert probed == [("ref:llama", ["bf16", "q8_0"])] and [case.basis for case in told.cases] == ["probed", "probed"]
    bench = 6 * (8 * 0.01 + 4 * 0.1)
    judged, reference = 2 * 1024 * 0.02, 2 * 1024 * 0.01
    assert told.cases[0].seconds == pytest.approx(1.0 + bench + judged + 5.0 + reference)
    assert told.cases[1].seconds == pytest.approx(1.0 + bench + judged + 5.0)  # q8_0 as the mean of the tried ones
    assert told.temporary_bytes == 2 * 1023 * 1536 * 4 and told.artifact_bytes > 7_000_000 + 3_700_000
    assert told.peak_rss_bytes > 300e6 and told.free_disk_bytes > 0 and told.memory_bytes > told.peak_rss_bytes
    assert list(tmp_path.iterdir()) == []


def test_no_probe_knows_the_texts_of_tasks(tmp_path):
    suite = replace(SUITE, bench=None, eval=None, tasks=TasksWork(names=("ref_recall",)))
    foreseen = foresee(tmp_path, suite)
    assert [(case.seconds, case.basis) for case in foreseen.cases] == [(None, "unknown")] * 2
    assert time_text(foreseen).startswith("unknown: records have no case like these")
    assert foreseen.peak_rss_bytes > 100e6
    for index in range(2):
        measure(tmp_path / "kept" / "a.jsonl", suite, index, wall_seconds=50.0, quantize_seconds=2.0)
    assert time_text(foresee(tmp_path, suite, kept="kept")) == "about 1 min 44 s"


def test_kept_records_of_this_machine_decide(tmp_path, probed):
    measure(tmp_path / "kept" / "a.jsonl", SUITE, 0, wall_seconds=50.0, quantize_seconds=2.0, reference_seconds=3.0)
    measure(tmp_path / "kept" / "b.jsonl", SUITE, 1, wall_seconds=60.0, quantize_seconds=4.0)
    told = foresee(tmp_path, kept="kept")
    assert probed == [] and [(case.seconds, case.basis) for case in told.cases] == [
        (55.0, "measured"),
        (64.0, "measured"),
    ]
    assert told.seconds == 119.0


def test_a_recipe_that_no_record_has_takes_the_time_of_its_probe(tmp_path, probed):
    """Its measuring is like that of others, its quantizing is not."""
    measure(tmp_path / "kept" / "a.jsonl", SUITE, 0, wall_seconds=50.0, quantize_seconds=2.0, reference_seconds=3.0)
    foreseen = foresee(tmp_path, kept="kept")
    assert probed == [("ref:llama", ["q8_0"])]
    assert [(case.seconds, case.basis) for case in foreseen.cases] == [(55.0, "measured"), (55.0, "alike")]


def test_measured_cases_take_no_time_unless_the_run_is_fresh(tmp_path):
    measure(tmp_path / "run" / "records.jsonl", SUITE, 0, wall_seconds=50.0)
    told = foresee(tmp_path)
    assert [case.basis for case in told.cases] == ["done", "alike"] and len(told.waiting) == 1
    assert [case.basis for case in foresee(tmp_path, fresh=True).cases] == ["measured", "alike"]
    assert [case.selected.point.recipe for case in foresee(tmp_path, only=(parse_only("recipe=q8*"),)).cases] == [
        "q8_0"
    ]


def test_a_recipe_that_does_not_fit_the_model_is_reported(tmp_path):
    unfit = Suite.of("test", ("rand:smollm2-135m",), ("q8_0", "rtn-w4g128"), bench=SpeedWork(pp=8))
    told = foresee(tmp_path, unfit)
    assert [case.basis for case in told.cases] == ["probed", "unfit"] and "multiple of 128" in told.cases[1].reason


def test_a_real_probe():
    job = ProbeJob("rand:tiny", ("q8_0", "q4_0"), None, threads=1, budget_s=60.0)
    told = probe(job, print).to_json()
    assert set(told["quantize_s"]) == {"q8_0", "q4_0"} and all(seconds > 0 for seconds in told["quantize_s"].values())
    # How they compare is left open: each is timed once, and others may be at work during any of them.
    assert min(told[name] for name in ("load_s", "token_s", "judged_token_s", "step_s")) > 0
    hurried = probe(replace(job, recipes=("q8_0",), budget_s=0.0), print).to_json()
    assert hurried["quantize_s"] == {}


def test_the_command_prints_it_and_writes_nothing(tmp_path, monkeypatch, capsys):
    from qbench.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(
        "name: s\nmodels: [ref:llama, rand:tiny]\nrecipes: [bf16, q8_0]\n"
        "eval: {max_windows: 2}\nbench: {pp: 8, tg: 4}\n"
    )
    assert main(["sweep", "s.yaml", "--dry-run"]) == 0
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("| r")]
    assert [row[:3] for row in rows] == [
        ["ref:llama", "bf16", "1"], ["ref:llama", "q8_0", "1"], ["rand:tiny", "bf16", "1"], ["rand:tiny", "q8_0", "1"],
    ]  # fmt: skip
    assert all(row[6].endswith((" s", " min")) for row in rows), "the time of each row"
    assert "4 of 4 cases" in out and "a probe" in out and "\ntime        about " in out
    assert "rand: models are never evaluated" in out
    assert main(["sweep", "s.yaml", "--dry-run", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["model"], row["measures"]) for row in rows[1:3]] == [
        ("ref:llama", ["eval", "bench"]),
        ("rand:tiny", ["bench"]),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"] and machine().id
