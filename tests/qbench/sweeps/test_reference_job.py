"""The reference of a sweep runs once: its logits are kept whole if they fit, else as top-k."""

import shutil
from types import SimpleNamespace

import pytest

from qbench.quality import evaluate
from qbench.quality.evaluate import prepare, read_text
from qbench.quality.kld import reference_logits
from qbench.quality.kld.reference_logits import KeptLogits, kept_bytes
from qbench.run.options import RunOptions
from qbench.run.work import QualityWork
from qbench.sources import open_source
from qbench.sweeps.job import MeasureJob, ReferenceJob, Work
from qbench.sweeps.jobs import measure, reference

MODEL = "ref:llama"
EVAL = QualityWork(max_windows=2, protocols=("llama.cpp-128",))


def run_reference(folder) -> list[str]:
    fingerprint = open_source(MODEL).fingerprint()
    return list(reference(ReferenceJob(MODEL, fingerprint, 1, str(folder), quality=EVAL), None).kept)


def run_case(folder) -> dict:
    job = MeasureJob(MODEL, MODEL, RunOptions(threads=1), str(folder), Work(EVAL))
    return measure(job, None).to_json()


def exact_bytes() -> int:
    source = open_source(MODEL)
    (scoring,) = prepare(source, read_text(None, MODEL), EVAL.max_windows, EVAL.protocols)
    return kept_bytes(scoring, source.config["vocab_size"], "exact")


@pytest.mark.parametrize("short_of", ["limit", "disk"])
def test_logits_that_do_not_fit_whole_are_kept_as_top_k(tmp_path, monkeypatch, short_of):
    live = run_case(tmp_path)
    if short_of == "limit":
        monkeypatch.setattr(reference_logits, "CACHE_LIMIT_BYTES", exact_bytes() - 1)
    else:  # half of the free space may be taken
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2 * exact_bytes() - 2))
    assert run_reference(tmp_path) == list(EVAL.protocols)
    (file,) = tmp_path.glob("*.logits")
    assert KeptLogits(file).header["mode"] == "top-k" and file.stat().st_size < exact_bytes()
    # A case that would run the reference with its model has no reference to run.
    monkeypatch.setattr(evaluate, "Reference", only_kept(evaluate.Reference))
    row = run_case(tmp_path)
    assert row["kld_reference"]["mode"] == "top-k" and live["kld_reference"]["mode"] == "exact"
    bound = row["kld_reference"]["error_bound_nats"]
    rounding = 2.0**-52 * open_source(MODEL).config["vocab_size"]  # of a sum over the vocabulary
    assert abs(row["kld"]["mean"] - live["kld"]["mean"]) <= bound + rounding


def only_kept(make):
    def made(vocab_size, model=None, kept=()):
        assert model is None and all(kept)
        return make(vocab_size, model, kept)

    return made


def test_if_nothing_fits_the_case_runs_the_reference_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    assert run_reference(tmp_path) == [] and not list(tmp_path.glob("*.logits"))
    assert run_case(tmp_path)["kld_reference"] == {
        "mode": "exact",
        "k": None,
        "bytes": None,
        "error_bound_nats": 0.0,
        "error_nats": 0.0,
    }


def test_logits_that_fit_are_kept_whole(tmp_path):
    assert run_reference(tmp_path) == list(EVAL.protocols)
    assert run_case(tmp_path)["kld_reference"]["mode"] == "exact"
