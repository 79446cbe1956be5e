"""One run decides once: formats are chosen, the container chosen and the quantized model built a single time."""

from collections import Counter

import pytest

from qbench.cli.main import main
from qbench.run.options import RunOptions
from qbench.run.work import CalibrationWork, SpeedWork
from qbench.sources import open_source
from qbench.sweeps import jobs
from qbench.sweeps.job import MeasureJob, QuantizeJob, Work
from quant.artifacts import output
from quant.quantize import QuantizedSource
from quant.recipes import Recipe

FEW = ("--samples", "2", "--seq-len", "32")


@pytest.fixture
def decisions(monkeypatch):
    """How often each of them is made"""
    counts: Counter[str] = Counter()

    def count(owner, name, what):
        original = getattr(owner, name)

        def counted(*args, **kwargs):
            counts[what] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count(Recipe, "choose", "choose")
    count(output, "container_of", "container")
    count(QuantizedSource, "__init__", "model")
    return counts


ONCE = {"choose": 1, "container": 1, "model": 1}


@pytest.mark.parametrize(
    "recipe, out",
    [("gptq-w4g128", "out"), ("gptq-q4_0", "out.gguf"), ("imatrix-q4_0", "folder/"), ("q4_0", "out.gguf")],
)
def test_an_artifact(tmp_path, decisions, recipe, out):
    assert main(["quantize", "ref:llama", "--recipe", recipe, "-o", f"{tmp_path}/{out}", *FEW]) == 0
    assert decisions == ONCE


def test_a_plan_with_its_forecast(decisions):
    """The probe of one layer builds a model, by the same choices."""
    assert main(["quantize", "ref:llama", "--recipe", "gptq-q4_0", "--dry-run", *FEW]) == 0
    assert decisions == {"choose": 1, "model": 1}


@pytest.mark.parametrize("recipe", ["q4_0", "rtn-w4g128"])
def test_a_run_in_memory(decisions, recipe):
    """No container is chosen: it is the recipe's own."""
    argv = ["eval", "ref:llama", "--recipe", recipe, "--windows", "1", "--protocol", "windows-1024"]
    assert main(argv) == 0
    assert decisions == {"choose": 1, "model": 1}


def test_a_case_of_a_sweep(tmp_path, decisions):
    fingerprint = open_source("rand:tiny").fingerprint()
    calibration = CalibrationWork(text="random", samples=2, seq_len=32)
    job = QuantizeJob("rand:tiny", fingerprint, 1, str(tmp_path), recipe="imatrix-q4_0", calibration=calibration)
    made = jobs.quantize(job, quiet)
    speed = SpeedWork(pp=8, tg=2, depth=0, repetitions=1)
    jobs.measure(
        MeasureJob(str(tmp_path / made.file), "rand:tiny", RunOptions(threads=1), "", Work(speed=speed)), quiet
    )
    assert decisions == ONCE


def quiet(done: int, total: int, what: str) -> None:
    """Progress that nobody follows."""


def test_a_verification(tmp_path, decisions):
    assert main(["quantize", "ref:llama", "--recipe", "gptq-q4_0", "-o", f"{tmp_path}/m.gguf", *FEW]) == 0
    decisions.clear()
    assert main(["verify", f"{tmp_path}/m.gguf"]) == 0
    assert decisions == {"choose": 1, "model": 1}
