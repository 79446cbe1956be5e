import pytest
from support.documents import case_key

from qbench.measure.records.record import Record
from qbench.run.case import Case
from qbench.sweeps.forecast.past import Past

BENCH = {"pp": 8, "tg": 4, "depth": 0, "repetitions": 5}


def case(recipe="q8_0", model="ref:llama", **changed) -> Case:
    base = {"model": model, "fingerprint": "f", "recipe": recipe, "kv_format": "f32", "threads": 1, "batch": 1}
    return Case.from_json(base | {"eval": None, "bench": BENCH} | changed)


def row(of: Case | dict, machine="here", status="ok", **metrics) -> Record:
    document = of if isinstance(of, dict) else of.to_json()
    about = {"key": case_key(document), "case": document, "status": status, "code": "c", "machine": {"id": machine}}
    kept = {"schema_version": 2, "time": "2026-01-01T00:00:00", "error": None, "metrics": metrics or None}
    return Record.from_json(about | kept)


def past(*rows: Record) -> Past:
    return Past({"here"}).read(rows)


def test_the_nearest_rows_decide():
    known = past(
        row(case(), wall_seconds=10.0, peak_rss_bytes=7),
        row(case(threads=2), wall_seconds=30.0),
        row(case("q4_0"), wall_seconds=100.0),
    )
    assert (known.measuring(case()).seconds, known.measuring(case()).basis) == (10.0, "measured")
    alike = known.measuring(case(threads=8))
    assert (alike.seconds, alike.basis) == (20.0, "alike")
    assert known.measuring(case("q5_0")).seconds == 30.0  # the median of the model's three
    assert known.measuring(case(model="rand:tiny")) is None
    assert known.measuring(case(bench=BENCH | {"depth": 64})) is None, "another amount of work takes another time"
    assert known.peak_rss_bytes(case(threads=2)) == 7 and known.peak_rss_bytes(case("q5_0")) is None


def test_tasks_are_work_and_policies_are_near():
    tasks = {"names": ["recall"], "limit": 4}
    known = past(
        row(case(bench=None), wall_seconds=1.0),
        row(case(bench=None, tasks=tasks), wall_seconds=90.0),
        row(case(bench=None, tasks=tasks, policy="tova:9"), wall_seconds=50.0),
    )
    assert known.measuring(case(bench=None, tasks=tasks | {"limit": 8})) is None, "more items take another time"
    assert known.measuring(case(bench=None, tasks=tasks, policy="tova:9", threads=2)).seconds == 50.0
    assert known.measuring(case(bench=None, tasks=tasks, policy="h2o:9")).seconds == 70.0


def test_artifacts_and_references():
    known = past(row(case(), wall_seconds=1.0, quantize_seconds=4.0, reference_seconds=2.0))
    assert known.quantizing(case(threads=2)) == 4.0 and known.quantizing(case("q4_0")) is None
    assert known.referencing(case("q4_0")) == 2.0 and known.referencing(case(model="rand:tiny")) is None


@pytest.mark.parametrize(
    "silent",
    [
        row(case(), machine="elsewhere", wall_seconds=1.0),
        row(case(), status="error"),
        row({"kind": "kernel", "op": "linear_q8_0"}, wall_seconds=1.0),
        row({"kind": "noise-floor", "model": "ref:llama", "fingerprint": "f"}, wall_seconds=1.0),
        row(case(), perplexity=2.0),
    ],
    ids=["another machine", "failed", "of a kernel", "of a noise floor", "never timed"],
)
def test_rows_without_times_predict_nothing(silent):
    assert past(silent).measuring(case()) is None


def test_rows_from_before_the_worker_was_timed_predict_their_seconds():
    assert past(row(case(), seconds=3.0)).measuring(case()).seconds == 3.0
