"""A model against itself: distances that must be zero are zero, and rounding gives a distance."""

import pytest
from support.close import assert_close
from support.documents import append_record

from qbench.comparison.floor_table import make_floor_grid
from qbench.comparison.measured import Measuring
from qbench.comparison.noise_floor import farthest, measure_noise_floors
from qbench.comparison.rows import kept_floors
from qbench.comparison.task_floor import measure_task_floors
from qbench.measure.records.record import Record
from qbench.statistics.estimate import Estimate


def documents(records) -> list[dict]:
    return [record.to_json() for record in records]


@pytest.fixture(scope="module")
def record():
    (found,) = documents(measure_noise_floors("ref:llama", Measuring(windows=2, threads=2)))
    return found


@pytest.mark.parametrize("name", ["threads", "batch"])
def test_threads_and_batch_change_no_digit(record, name):
    assert record["metrics"]["variants"][name]["floor"] == {"perplexity": 0.0, "kld": 0.0}


def test_rounding_to_bfloat16_is_the_floor(record):
    rounded = record["metrics"]["variants"]["bf16"]
    assert record["metrics"]["floor"] == rounded["floor"]
    # Two windows: the largest divergence that a window's interval allows, and far below that of 4 bits per weight.
    assert 0 < rounded["kld"]["value"] < 1e-3 and rounded["floor"]["kld"] == rounded["kld"]["high"]


def test_it_is_kept_as_a_record_and_found_again(record, tmp_path):
    path = tmp_path / "r.jsonl"
    append_record(path, record)
    assert record["case"]["kind"] == "noise-floor" and record["metrics"]["blocks"]["nll"]
    key = record["case"]["fingerprint"], record["metrics"]["protocol"]["hash"]
    assert kept_floors([str(path)]) == {key: record["metrics"]["floor"]}


def test_the_highest_floor_of_several_machines_counts(record, tmp_path):
    path = tmp_path / "r.jsonl"
    other = record["metrics"] | {"floor": {"perplexity": 0.0, "kld": 9.0}}
    append_record(path, record)
    append_record(path, record | {"machine": record["machine"] | {"id": "other"}, "metrics": other})
    (floor,) = kept_floors([str(path)]).values()
    assert floor == record["metrics"]["floor"] | {"kld": 9.0}


def test_the_table_lists_each_change(record):
    rows = {row[0]: row for row in make_floor_grid(Record.from_json(record)).rows}
    assert list(rows) == ["threads", "batch", "bf16", "floor"]
    assert rows["threads"][1] == "1 instead of 2" and rows["threads"][2:] == ["identical"] * 3


def test_a_distance_is_that_of_the_farther_end():
    assert_close(farthest(Estimate(1.001, 1e-3, 0.998, 1.004), 1.0), 0.004, atol=1e-15)
    assert_close(farthest(Estimate(0.97), 1.0), 0.03, atol=1e-15)


def test_each_protocol_has_its_own_floor(tmp_path):
    names = ("windows-512", "stride-512")
    floors = documents(measure_noise_floors("ref:llama", Measuring(windows=2, threads=1, protocols=names)))
    assert [floor["metrics"]["protocol"]["name"] for floor in floors] == list(names)
    assert len({floor["key"] for floor in floors}) == 2
    for floor in floors:
        append_record(tmp_path / "r.jsonl", floor)
        assert floor["metrics"]["variants"]["threads"]["floor"]["kld"] == 0 < floor["metrics"]["floor"]["kld"]
    assert len(kept_floors([str(tmp_path / "r.jsonl")])) == 2


def test_a_task_has_one_too(tmp_path):
    (floor,) = documents(measure_task_floors("ref:llama", Measuring(tasks="ref_minimal_pairs", limit=20, threads=1)))
    variants, floors = floor["metrics"]["variants"], floor["metrics"]["floor"]
    same = {"lost": 0, "gained": 0, "num_items": 20}
    assert variants["threads"]["floor"] == 0 and variants["threads"]["flips"] == same
    flips = variants["bf16"]["flips"]
    assert floors == {"ref_minimal_pairs": (flips["lost"] + flips["gained"]) / 20}
    append_record(tmp_path / "r.jsonl", floor)
    ((key, kept),) = kept_floors([str(tmp_path / "r.jsonl")]).items()
    assert key[1] == floor["metrics"]["tasks"]["ref_minimal_pairs"]["protocol_hash"] and kept == floors
    rows = make_floor_grid(Record.from_json(floor)).rows
    assert [row[0] for row in rows] == ["threads", "bf16", "floor"]
    assert rows[0][2:] == ["identical", "0 lost, 0 gained of 20"]
