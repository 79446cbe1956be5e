import fcntl
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from qbench.measure.host import commit
from qbench.measure.records import record
from qbench.run.work import QualityWork, SpeedWork
from qbench.sweeps import case_runner
from qbench.sweeps import sweep as sweep_module
from qbench.sweeps.executor import LocalExecutor
from qbench.sweeps.interrupt import gentle_interrupt
from qbench.sweeps.suite.rules import parse_only
from qbench.sweeps.suite.suite import Suite
from qbench.sweeps.sweep import Selection, run_sweep
from quant.errors import InputError
from quant.recipes import RECIPES as PRESETS

HERE = Path(__file__).parent
STUB = partial(LocalExecutor, worker=(sys.executable, str(HERE / "stub_worker.py")))
REPO = HERE.parents[2]
MODELS = ("ref:llama", "ref:llama-outliers")


@pytest.fixture(autouse=True)
def same_code(monkeypatch):
    """An edit during the test would make finished cases count as stale, as it should everywhere else."""
    fix_code(monkeypatch.setattr)


def fix_code(replace) -> None:
    for module in (commit, record, sweep_module):
        replace(module, "code_version", lambda: commit.CodeVersion(None, None, "0" * 16))
    replace(case_runner, "code_hash", lambda packages: "0" * 16)


def read_records(path: Path) -> list[dict]:
    """The documents; `support`, which has them too, is not there for the processes that import this file."""
    return [one.to_json() for one in record.read_records(path)]


def suite(*recipes: str) -> Suite:
    return Suite.of("test", MODELS, recipes, eval=QualityWork(max_windows=1), bench=SpeedWork(pp=8))


def sweep(out_dir: Path, *recipes: str, on_event=None, **how):
    return run_sweep(suite(*recipes), out_dir, on_event, executor=STUB, **how)


def rows(out_dir: Path) -> list[tuple[str, str, str]]:
    return [(r["case"]["model"], r["case"]["recipe"], r["status"]) for r in read_records(out_dir / "records.jsonl")]


def test_every_case_becomes_a_row_and_a_second_run_has_nothing_to_do(tmp_path):
    events = []
    result = sweep(tmp_path, "bf16", "q8_0", on_event=events.append)
    assert (result.measured, result.skipped, result.failed) == (4, 0, 0)
    assert rows(tmp_path) == [(m, r, "ok") for m in MODELS for r in ("bf16", "q8_0")]
    assert [event.index for event in events if event.kind == "done"] == [0, 1, 2, 3]
    assert {"reference", "quantize", "measure"} == {event.stage for event in events if event.kind == "progress"}
    assert {r["metrics"]["quantize_seconds"] for r in read_records(tmp_path / "records.jsonl")} == {1.5}
    again = sweep(tmp_path, "bf16", "q8_0")
    assert (again.measured, again.skipped, again.failed) == (0, 4, 0) and len(rows(tmp_path)) == 4


def test_a_new_recipe_adds_only_its_own_rows(tmp_path):
    sweep(tmp_path, "bf16")
    assert sweep(tmp_path, "bf16", "q4_0").measured == 2


def test_a_crash_or_an_error_is_that_rows_and_is_tried_again(tmp_path, monkeypatch):
    for recipe in ("crash", "refuse"):  # the name decides what to do in the stub
        monkeypatch.setitem(PRESETS, recipe, PRESETS["q8_0"])
    result = sweep(tmp_path, "crash", "refuse", "q8_0")
    assert (result.measured, result.failed) == (2, 4)
    errors = {r["case"]["recipe"]: r["error"] for r in read_records(tmp_path / "records.jsonl")}
    assert "SIGSEGV" in errors["crash"] and errors["refuse"] == "this recipe cannot be measured"
    assert errors["q8_0"] is None
    again = sweep(tmp_path, "crash", "refuse", "q8_0")
    assert (again.skipped, again.failed) == (2, 4)


def test_artifacts_are_kept_while_their_inputs_are_the_same(tmp_path):
    sweep(tmp_path, "q8_0")
    artifact = tmp_path / "artifacts" / "ref_llama-q8_0" / "model.gguf"
    artifact.write_text("kept")
    (tmp_path / "records.jsonl").unlink()
    sweep(tmp_path, "q8_0")
    assert read_records(tmp_path / "records.jsonl")[0]["metrics"]["content"] == "kept"
    (artifact.parent / "made.json").write_text("{}")
    (tmp_path / "records.jsonl").unlink()
    sweep(tmp_path, "q8_0")
    assert artifact.read_text() == "first half second half of q8_0"


def test_an_artifact_that_lost_its_file_is_made_again(tmp_path):
    sweep(tmp_path, "q8_0")
    (tmp_path / "records.jsonl").unlink()
    for stamp in (tmp_path / "artifacts").glob("*/made.json"):
        lost = stamp.parent / json.loads(stamp.read_text())["file"]
        lost.unlink()
    assert sweep(tmp_path, "q8_0").failed == 0
    assert lost.exists()


def test_an_edited_recipe_file_is_another_case_and_another_artifact(tmp_path):
    recipe = tmp_path / "mine.yaml"
    for default in ("q8_0", "q4_0"):
        recipe.write_text(f"container: gguf\ndefault: {default}\n")
        assert sweep(tmp_path / "run", str(recipe)).measured == 2
        (artifact,) = (tmp_path / "run" / "artifacts").glob("ref_llama-_*/model.gguf")
        assert artifact.read_text() != "of the recipe before"
        artifact.write_text("of the recipe before")
    assert sweep(tmp_path / "run", str(recipe)).skipped == 2


def test_an_edited_text_is_another_case(tmp_path):
    text = tmp_path / "text.txt"
    edited = Suite.of("test", ("ref:llama",), ("q8_0",), eval=QualityWork(str(text), 1))
    for words in ("one text", "another text"):
        text.write_text(words)
        assert run_sweep(edited, tmp_path / "run", executor=STUB).measured == 1
    assert run_sweep(edited, tmp_path / "run", executor=STUB).skipped == 1


def test_two_sweeps_do_not_share_a_folder(tmp_path):
    def intrude(event):
        with pytest.raises(InputError, match="another sweep"):
            sweep(tmp_path, "q8_0")

    sweep(tmp_path, "q8_0", on_event=intrude)
    assert len(rows(tmp_path)) == 2


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write there"):
        sweep(tmp_path / "file" / "runs", "q8_0")


def test_ctrl_c_lets_the_case_that_runs_end(tmp_path):
    told = []

    def interrupt(event):
        if event.kind == "start":
            os.kill(os.getpid(), signal.SIGINT)

    with gentle_interrupt(lambda: told.append("stopping")) as stop:
        result = sweep(tmp_path, "bf16", "q8_0", on_event=interrupt, stop=stop)
        assert stop() and told == ["stopping"]
    assert (result.measured, result.failed, result.left) == (1, 0, 3)
    assert rows(tmp_path) == [("ref:llama", "bf16", "ok")]
    assert sweep(tmp_path, "bf16", "q8_0").measured == 3


def test_a_second_ctrl_c_stops_at_once_and_loses_nothing(tmp_path):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored

    def interrupt(event):
        if event.index == 1 and event.kind == "start":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with gentle_interrupt(lambda: None) as stop, pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, "bf16", "q8_0", on_event=interrupt, stop=stop)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert rows(tmp_path) == [("ref:llama", "bf16", "ok")] and not (tmp_path / "tmp").exists()
    assert sweep(tmp_path, "bf16", "q8_0").measured == 3


def test_a_limit_leaves_the_rest_for_the_next_run(tmp_path):
    result = sweep(tmp_path, "bf16", "q8_0", selection=Selection(limit=1))
    assert (result.measured, result.left) == (1, 3)
    result = sweep(tmp_path, "bf16", "q8_0", selection=Selection(limit=2))
    assert (result.measured, result.skipped, result.left) == (2, 1, 1)


def test_no_case_begins_after_the_budget_and_the_one_that_runs_ends(tmp_path, monkeypatch):
    now = 0.0

    def dawdle(event):
        nonlocal now
        now += 20.0 * (event.kind == "start")

    monkeypatch.setattr(sweep_module, "time", SimpleNamespace(monotonic=lambda: now))
    result = sweep(tmp_path, "bf16", "q8_0", on_event=dawdle, selection=Selection(budget_s=10))
    assert (result.measured, result.failed, result.left) == (1, 0, 3)
    assert sweep(tmp_path, "bf16", "q8_0", selection=Selection(budget_s=600)).measured == 3


def test_every_speed_in_two_launches_and_resumed_like_any_case(tmp_path):
    selection = Selection(launches=2, limit=5)
    result = sweep(tmp_path, "bf16", "q8_0", selection=selection)
    assert (result.measured, result.left) == (5, 3)
    events = []
    assert sweep(tmp_path, "bf16", "q8_0", selection=selection, on_event=events.append).measured == 3
    assert {event.of_kind for event in events if event.kind == "done"} == {"again"}
    found = list(read_records(tmp_path / "records.jsonl"))
    firsts, seconds = found[:4], found[4:]
    assert [row["case"]["of"] for row in seconds] == [row["key"] for row in firsts]
    for first, second in zip(firsts, seconds, strict=True):
        assert second["case"] == first["case"] | {"kind": "again", "of": first["key"], "eval": None}
    assert sweep(tmp_path, "bf16", "q8_0").measured == 0


def test_further_launches_follow_one_another_and_each_has_its_row(tmp_path):
    assert sweep(tmp_path, "bf16", "q8_0", selection=Selection(launches=3)).measured == 12
    found = list(read_records(tmp_path / "records.jsonl"))
    assert [row["case"].get("launch") for row in found] == [None] * 8 + [3] * 4
    assert len({row["key"] for row in found}) == 12
    pids = [{row["metrics"]["worker"] for row in found[first : first + 4]} for first in (0, 4, 8)]
    assert [len(of_launch) for of_launch in pids] == [1, 1, 1] and len(set.union(*pids)) == 3
    two = Suite.of("test", ("ref:llama",), ("bf16",), bench=SpeedWork(pp=8), launches=2)
    assert run_sweep(two, tmp_path / "two", executor=STUB).measured == 2
    assert run_sweep(two, tmp_path / "two", executor=STUB, selection=Selection(launches=1)).left == 0


def test_further_launches_without_a_speed_are_an_error(tmp_path):
    quality = Suite.of("test", ("ref:llama",), ("bf16",), eval=QualityWork(max_windows=1))
    with pytest.raises(InputError, match="2 launches measure speeds"):
        run_sweep(quality, tmp_path, executor=STUB, selection=Selection(launches=2))


def test_a_fresh_run_measures_all_cases_and_keeps_the_old_rows(tmp_path):
    only = (parse_only("model=ref:llama"),)
    for measured in (1, 0):
        assert sweep(tmp_path, "bf16", selection=Selection(only=only)).measured == measured
    assert sweep(tmp_path, "bf16", selection=Selection(only=only, fresh=True)).measured == 1
    assert rows(tmp_path) == [("ref:llama", "bf16", "ok")] * 2


def test_a_suite_that_cannot_run_leaves_no_folder(tmp_path):
    absent = Suite.of("test", ("no/such/model",), ("bf16",), bench=SpeedWork(pp=8))
    with pytest.raises(InputError, match="no/such/model"):
        run_sweep(absent, tmp_path / "run", executor=STUB)
    with pytest.raises(InputError, match="matches none"):
        sweep(tmp_path / "run", "bf16", selection=Selection(only=(parse_only("recipe=q2_k"),)))
    assert list(tmp_path.iterdir()) == []


def test_each_case_names_its_way_of_measuring(tmp_path):
    grid = Suite.of(
        "test",
        ("ref:llama",),
        ("q8_0",),
        kv_formats=("f32", "kv-int8"),
        batches=(2,),
        isa=("auto", "scalar"),
        bench=SpeedWork(pp=8),
    )
    run_sweep(grid, tmp_path, executor=STUB)
    asked = [record["metrics"]["asked"] for record in read_records(tmp_path / "records.jsonl")]
    assert [(job["kv"], job["isa"], job["bench"]["batch"]) for job in asked] == [
        (None, None, 2),
        (None, "scalar", 2),
        ("kv-int8", None, 2),
        ("kv-int8", "scalar", 2),
    ]
    assert len(list((tmp_path / "artifacts").iterdir())) == 1


RECIPES = ("bf16", "q8_0", "q4_0", "q6_k")
# Forks a sweep for each folder it reads: the imports take seconds, and they are made once.
# Each line is written at once. Under PYTHONUNBUFFERED, print writes text and newline apart. If the kill comes between
# them, "end" continues the line, and the test would wait for it without end.
SCRIPT = f"""
import os, sys
def tell(line): os.write(1, f"{{line}}\\n".encode())
sys.path.insert(0, {str(HERE)!r})
from test_sweep import RECIPES, Path, fix_code, sweep
fix_code(setattr)
for line in sys.stdin:
    sweeper = os.fork()
    if sweeper == 0:
        os.setsid()
        tell(os.getpid())
        told = lambda event: tell(f"{{event.kind}} {{event.record.error if event.kind == 'failed' else ''}}")
        sweep(Path(line.strip()), *RECIPES, on_event=told)
        os._exit(0)
    tell(f"end {{os.waitpid(sweeper, 0)[1]}}")
"""


@pytest.fixture
def sweeps():
    """A process that takes folders on its stdin and prints for each sweep its pid, its events, and "end STATUS"."""
    pipe = subprocess.PIPE
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # a process that forks has no other
    command = [sys.executable, "-c", SCRIPT]
    process = subprocess.Popen(command, cwd=REPO, env=one_thread, stdin=pipe, stdout=pipe, text=True, bufsize=1)
    yield process
    process.communicate(timeout=60)
    assert process.returncode == 0


def next_line(sweeps: subprocess.Popen) -> str:
    """The next line of the process; its end is an error."""
    line = sweeps.stdout.readline()
    assert line, f"the process of the sweeps ended with {sweeps.wait(timeout=60)}"
    return line


def seconds_an_event(sweeps: subprocess.Popen, out_dir: Path) -> float:
    """Median time from one event to the next in an undisturbed sweep."""
    sweeps.stdin.write(f"{out_dir}\n")
    times = []
    while not next_line(sweeps).startswith("end"):
        times.append(time.perf_counter())
    return statistics.median(later - earlier for earlier, later in pairwise(times))


def kill(sweeper: psutil.Process, with_workers: bool) -> None:
    """All of its processes have ended then: those that are not killed end with their parents."""
    sweeper.suspend()  # it does not see its workers end
    workers = sweeper.children(recursive=True)
    for process in [*(workers if with_workers else []), sweeper]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    while not all(map(has_ended, workers)):
        time.sleep(0.002)


def has_ended(process: psutil.Process) -> bool:
    """Whether it runs no more code; some systems keep its entry for longer."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def killed(sweeps: subprocess.Popen, out_dir: Path, after_events: int, delay: float, with_workers: bool) -> bool:
    """Starts a sweep and kills it a moment after so many events; False if it came to its end first."""
    sweeps.stdin.write(f"{out_dir}\n")
    pid = int(next_line(sweeps))
    told = ""
    for _ in range(after_events):
        told = next_line(sweeps)
        assert not told.startswith("failed"), told
        if told.startswith("end"):
            break
    else:
        time.sleep(delay)
        with suppress(psutil.NoSuchProcess):  # it came to its end in the meantime
            kill(psutil.Process(pid), with_workers)
        while not told.startswith("end"):
            told = next_line(sweeps)
    with open(out_dir / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a worker that is killed as it starts may hold it a moment longer
    status = int(told.split()[1])
    assert status in (0, signal.SIGKILL)
    return status != 0


ALL_DIE = pytest.param(True, id="all die", marks=pytest.mark.exhaustive("seven seconds; a dead sweep is in every run"))


@pytest.mark.parametrize("with_workers", [ALL_DIE, pytest.param(False, id="only the sweep dies")])
def test_killed_at_any_moment_it_ends_with_every_row_once(tmp_path, sweeps, with_workers):
    rng = random.Random(7)
    kills, event = 0, seconds_an_event(sweeps, tmp_path.with_name("undisturbed"))
    # A case reports 6 to 9 events, so kills fall into every stage of it and most runs get past a row.
    while killed(sweeps, tmp_path, rng.randrange(6, 17), rng.uniform(0, 2 * event), with_workers):
        kills += 1
        assert kills < 100, f"no row more after so many kills: {rows(tmp_path)}"
    run_sweep(suite(*RECIPES), tmp_path, executor=STUB)
    assert kills >= 3
    expected = {(model, recipe, "ok") for model in MODELS for recipe in RECIPES}
    assert Counter(rows(tmp_path)) == Counter(expected)
    assert {path.name for path in tmp_path.iterdir()} == {"artifacts", "records.jsonl", ".lock"}
    for folder in (tmp_path / "artifacts").iterdir():
        assert {path.name for path in folder.iterdir()} == {"model.gguf", "made.json"}
        assert (folder / "model.gguf").read_text().startswith("first half second half of ")


def test_one_recipe_makes_an_artifact_for_each_of_three_seeds(tmp_path):
    work = SpeedWork(pp=8, tg=0, repetitions=1)
    result = run_sweep(Suite.of("test", ("rand:tiny",), ("q8_0",), seeds=(0, 1, 2), bench=work), tmp_path / "run")
    assert (result.measured, result.failed) == (3, 0)
