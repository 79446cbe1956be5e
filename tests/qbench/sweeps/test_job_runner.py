"""Jobs in processes of their own, forked from one that has its packages loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.waits import WAIT_S

from qbench.measure.metrics import Metrics
from qbench.sweeps.case_runner import overhead
from qbench.sweeps.job_runner import JobFailed, Worker, run_job
from qbench.sweeps.messages import JobRequest

WORKER = """
import os, signal, sys, time, weakref
from pathlib import Path
from qbench.sweeps.worker import serve
from quant.errors import InputError

LOADED_IN = os.getpid()
WROTE = Path(sys.argv[1], "at_exit")

def write(who):
    with open(WROTE, "a") as file:
        file.write(who)

def pid(progress): return {"pid": os.getpid(), "loaded_in": LOADED_IN, "stdin": sys.stdin.read()}
def environment(progress): return {"value": os.environ.get("QBENCH_TEST")}
def slow(progress): time.sleep(0.05); return {}
def refuse(progress): raise InputError("no such thing")
def bug(progress): print("the last words"); raise KeyError("of ours")
def crash(progress): os.kill(os.getpid(), signal.SIGSEGV)
def kill_worker(progress): os.kill(LOADED_IN, signal.SIGKILL); time.sleep(9)
def at_exit(progress): weakref.finalize(signal, write, "own"); return {"path": str(WROTE)}
def partial(progress): progress(1, 2, "half"); os._exit(0)
weakref.finalize(sys, write, "worker")
jobs = (pid, environment, slow, refuse, bug, crash, kill_worker, at_exit, partial)
sys.exit(serve({job.__name__: job for job in jobs}))
"""

# It asks for a job and ends before the worker begins, as a sweep does that is killed while its worker starts.
DIES = """
import json, os, subprocess, sys
code, folder = sys.argv[1:]
late = "import os, time\\nwhile os.getppid() == %d: time.sleep(0.01)\\n" % os.getpid()
worker = subprocess.Popen([sys.executable, "-c", late + code, folder], stdin=subprocess.PIPE)
request = {"job": {"name": "pid", "arguments": {}}, "log": folder + "/log", "parent": os.getpid()}
worker.stdin.write(json.dumps(request).encode() + b"\\n")
worker.stdin.flush()
os._exit(0)
"""


@pytest.fixture
def worker(tmp_path):
    with Worker((sys.executable, "-c", WORKER, str(tmp_path))) as worker:
        yield worker


@pytest.fixture
def run(worker, tmp_path):
    def run(job: str, **how):
        return worker.run(JobRequest(job), tmp_path / "log", **how)

    return run


def test_each_job_has_a_process_of_its_own_and_the_packages_of_one(run):
    first, second = run("pid"), run("pid")
    assert first["loaded_in"] == second["loaded_in"] and len({first["pid"], second["pid"], first["loaded_in"]}) == 3
    assert first["stdin"] == "", "a job reads none of the jobs after it"


def test_a_changed_environment_is_of_one_job(run, monkeypatch):
    monkeypatch.setenv("QBENCH_TEST", "ambient")
    values = [run("environment", environment=of)["value"] for of in ({"QBENCH_TEST": "own"}, {"QBENCH_TEST": None}, {})]
    assert values == ["own", None, "ambient"]


def test_the_cause_of_a_dead_job_is_reported_and_the_next_one_runs(run):
    for job, told in (
        ("refuse", "^no such thing$"),
        ("crash", "killed by SIGSEGV"),
        ("bug", "ended with status 1: KeyError: 'of ours'"),
        ("kill_worker", r"killed by SIGKILL \(out of memory\?\)"),
        ("partial", "ended with status 0"),
    ):
        with pytest.raises(JobFailed, match=told):
            run(job)
        assert run("pid")["pid"]


def test_a_job_of_a_sweep_that_has_died_is_not_done(tmp_path):
    done = subprocess.run([sys.executable, "-c", DIES, WORKER, str(tmp_path)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", ""), "the output ends with the worker"
    assert not (tmp_path / "log").exists()


def test_the_time_of_a_job_is_that_of_its_process(run, worker):
    run("slow")
    assert 0.05 <= worker.seconds < WAIT_S


def test_a_failed_single_job_reports_no_progress(tmp_path):
    told = []
    with pytest.raises(JobFailed, match="no/such"):
        job = {"model": "no/such", "fingerprint": "f", "quality": {}, "threads": 1, "folder": "x"}
        run_job(JobRequest("reference", job), tmp_path / "log", progress=lambda *state: told.append(state))
    assert told == []


def test_a_job_skips_the_exit_handlers_of_its_worker(run, tmp_path):
    path = run("at_exit")["path"]
    assert Path(path).read_text() == "own"


def test_overhead_leaves_out_passes_loading_and_machine_probes():
    assert overhead(10.0, Metrics(timed_seconds=5.0, load_seconds=2.5, peaks_seconds=2.0)) == 0.5
