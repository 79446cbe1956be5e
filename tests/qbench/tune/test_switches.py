"""Switch points of `qbench tune`: the choice from times, the paths of the kernels, and tables that are ignored."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

import cpu_kernels
from qbench.measure import tuning
from qbench.measure.host.machine import machine
from qbench.measure.tuning import NEVER, VERSION, LinearSwitch, Tuning, keep_tuning, read_tuning, tuned, use_shipped
from qbench.mla.measure import ModePoint
from qbench.runtime.attention.mla_costs import COSTS, plan_costs
from qbench.sources import open_source
from qbench.tune.linears import best_point, best_switch, path_by
from qbench.tune.tune import best_threads, judged
from quant.formats import get_format
from quant.models import ModelConfig

ISA = cpu_kernels.chosen_isa("linear_q4_k")
Q4_K = LinearSwitch("linear_q4_k", ISA, 5, 40, 50 if ISA == "amx" else None)
TABLE = Tuning(VERSION, machine().id, "2026-01-01", [Q4_K])


@pytest.fixture(autouse=True)
def shipped(monkeypatch, tmp_path):
    """A cache folder of the test's own; the shipped points hold after it."""
    monkeypatch.delenv(tuning.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuned.cache_clear()
    yield
    tuned.cache_clear()
    use_shipped()


def kept(table: Tuning, **changed) -> str:
    file = tuning.tuning_file()
    tuning.check_writable(file)
    keep_tuning(table, file)
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    return str(file)


def paths(name: str, tokens: tuple[int, ...]) -> list[str]:
    stored = get_format(name).quantize(np.ones((1, 256), np.float32))
    packed = cpu_kernels.PackedLinear(stored.format, stored.parts, stored.shape)
    return [packed.choice(count)[1] for count in tokens]


def test_a_kept_table_decides_the_path_of_products():
    counts = (5, 6, 39, 40)
    before = paths("q4_k", counts), paths("q6_k", counts)
    kept(TABLE)
    found = tuned()
    assert found == TABLE and found.name.startswith(machine().id)
    rounds = "tile" if Q4_K.isa == "avx2" else "int8x256"
    assert paths("q4_k", counts) == ["direct", "tile", "tile", rounds]
    assert paths("q6_k", counts) == before[1], "an op that the table does not name keeps the shipped points"
    use_shipped()
    assert paths("q4_k", counts) == before[0]


@pytest.mark.skipif(ISA != "amx", reason="this machine has no amx")
def test_a_kept_table_decides_when_tiles_multiply(monkeypatch):
    before = paths("q4_k", (27, 28)), paths("w4g32", (27, 28))
    assert before == (["tile", "bf16"], ["tile", "bf16"])
    kept(replace(TABLE, linears=[Q4_K, LinearSwitch("linear_w4", "amx", 8, NEVER, 20)]))
    tuned()
    assert paths("q4_k", (39, 49, 50)) == ["tile", "int8x256", "bf16"]
    assert paths("w4g32", (8, 19, 20)) == ["direct", "tile", "bf16"]
    cpu_kernels.set_switch_points("linear_q4_k", "amx", 5, 20)
    assert paths("q4_k", (27, 28)) == ["int8x256", "bf16"], "without a number the shipped one holds"
    monkeypatch.setenv("QBENCH_ISA", "avx512_vnni")
    assert paths("q4_k", (19, 20, 512)) == ["tile", "int8x256", "int8x256"], "few tokens share their points"


def test_another_instruction_set_keeps_the_shipped_points(monkeypatch):
    monkeypatch.setenv("QBENCH_ISA", "scalar")
    before = paths("q4_k", (5, 6))
    kept(replace(TABLE, linears=[replace(Q4_K, isa=cpu_kernels.features()[-1])]))
    tuned()
    assert paths("q4_k", (5, 6)) == before


@pytest.mark.parametrize(
    "changed, reason",
    [
        ({"machine": "another"}, "it is of machine another, and this is"),
        ({"version": VERSION - 1}, f"it has version {VERSION - 1}"),
        ({"linears": [{"op": "linear_q4_k"}]}, "it is damaged"),
        (
            {"linears": [{"op": "linear_q4_k", "isa": "scalar", "most_direct": -1, "least_rerounded": 1}]},
            "it is damaged",
        ),
        ({"linears": [asdict(replace(Q4_K, isa="scalar", least_bf16=48))]}, "it is damaged"),
        ({"linears": [{"op": "nothing", "isa": "scalar", "most_direct": 1, "least_rerounded": 1}]}, "it is damaged"),
        ({"threads": 4000}, "it is damaged"),
        ({"latent": {"absorbed": 1.0}}, "it is damaged"),
    ],
    ids=["machine", "version", "entry", "number", "tiles", "op", "threads", "costs"],
)
def test_a_table_that_is_not_for_this_machine_is_ignored_in_one_line(changed, reason, capsys):
    file = kept(TABLE, **changed)
    before = paths("q4_k", (5, 6))
    assert tuned() is None and tuned() is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tuning: {file} is ignored: {reason}")
    assert paths("q4_k", (5, 6)) == before


def test_a_file_without_json_is_ignored(tmp_path):
    (tmp_path / "t.json").write_text("{")
    assert read_tuning(tmp_path / "t.json") == "it is no JSON object"


def test_off_and_a_file_that_is_not_there(monkeypatch):
    kept(TABLE)
    monkeypatch.setenv(tuning.VARIABLE, tuning.OFF)
    assert tuned() is None
    tuned.cache_clear()
    monkeypatch.setenv(tuning.VARIABLE, "/nowhere/t.json")
    with pytest.raises(ValueError, match=r"QBENCH_TUNING=/nowhere/t\.json: no such file"):
        tuned()


def test_the_point_of_least_time_unless_it_gains_nothing():
    times = {count: {"direct": float(count), "tile": 10.0} for count in (4, 8, 12, 16)}
    points = [0, *times]
    assert best_point(times, "direct", "tile", 4, points) == 8
    assert best_point(times, "direct", "tile", 16, points) == 8
    even = {count: {"direct": 1.0, "tile": 1.001} for count in (4, 8)}
    assert best_point(even, "direct", "tile", 4, [0, *even]) == 4, "a thousandth is noise"


def test_paths_by_points():
    switch = LinearSwitch("linear_q4_k", "avx2", 8, 64)
    assert [path_by(switch, count) for count in (8, 9, 63, 64)] == ["direct", "tile", "tile", "int8x256"]
    assert path_by(replace(switch, least_rerounded=NEVER), 512) == "tile"
    on_amx = replace(switch, isa="amx", least_bf16=80)
    assert [path_by(on_amx, count) for count in (8, 63, 79, 80)] == ["direct", "tile", "int8x256", "bf16"]


class Timed:
    """A product whose times are given: a token costs 1, or in tiles of bfloat16 a tenth and 30 per call."""

    def times(self, tokens, paths):
        return {
            count: {path: 30 + count / 10 if path == "bf16" else float(count) for path in paths} for count in tokens
        }


def test_the_point_of_tiles_is_the_first_faster_one():
    shipped = LinearSwitch("linear_q4_k", "amx", 8, 64, 48)
    assert best_switch(Timed(), shipped) == replace(shipped, least_bf16=40)
    assert best_switch(Timed(), replace(shipped, least_bf16=40)).least_bf16 == 40
    assert best_switch(Timed(), replace(shipped, isa="avx512", least_bf16=None)).least_bf16 is None


def test_only_tables_of_amx_have_a_point_of_tiles():
    assert "least_bf16" not in LinearSwitch("linear_q4_k", "avx2", 8, 64).to_json()
    assert LinearSwitch("linear_q4_k", "amx", 8, 64, 48).to_json()["least_bf16"] == 48


def test_fewer_threads_have_to_gain_everywhere():
    assert best_threads({1: [1.0, 1.0], 2: [1.1, 1.1]}) == (1, pytest.approx(1.1))
    assert best_threads({1: [1.0, 2.0], 2: [1.1, 1.1]}) == (2, 1.0)


def test_fitted_costs_are_kept_if_their_choices_are_faster():
    config = ModelConfig.of(open_source("ref:mla-moe"))
    other = asdict(COSTS) | {"absorbed": 1e9}  # keys and values are made again, however few tokens there are

    def found(elided: float, compressed: float):
        times = {"elided": elided, "compressed": compressed}
        return judged([ModePoint("m", 0, 1, 8, mode, ms) for mode, ms in times.items()], {"m": config}, other)

    assert found(2.0, 1.0).costs == other and found(2.0, 1.0).gain == pytest.approx(2.0)
    assert found(1.0, 2.0).costs is None and found(1.0, 2.0).gain == 1.0


def test_costs_of_a_table_hold_for_plans():
    latent = asdict(COSTS) | {"calls": 1.0}
    kept(replace(TABLE, latent=latent))
    tuned()
    assert asdict(plan_costs()) == latent
    use_shipped()
    assert plan_costs() is COSTS


def test_records_name_the_table():
    from qbench.calibration.open_subject import open_subject

    kept(replace(TABLE, threads=1))
    subject = open_subject("rand:tiny")
    assert subject.facts({}).tuning == replace(TABLE, threads=1).name and subject.threads == 1
