import sys
import venv
from pathlib import Path

import pytest

from qbench.gate import launches as module
from qbench.gate.base_commit import Tree
from qbench.gate.launches import Subject, check_worker, grouped, launch_all, launch_group, peaks_of
from qbench.measure.launch import Launch
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from quant.errors import InputError

CASE = SpeedWork(pp=8, tg=4, repetitions=3)


def subject(name: str, sides: int = 2, *, isa: str | None = None, **options) -> Subject:
    tree = Tree("this tree", Path(sys.executable), Path())
    return Subject(name, ((tree, Path("rand:tiny")),) * sides, CASE, RunOptions(**{"threads": 1, **options}), isa)


def test_two_processes_run_all_subjects_of_a_group_in_turn():
    """With real processes: the only test here that starts some, seconds each."""
    first, second = launch_group([subject("first"), subject("second", kv_format="kv-int8")])
    for launch in (first, second):
        assert [len(side) for side in launch.seconds["pp"]] == [len(side) for side in launch.seconds["tg"]] != [0, 0]
        assert min(seconds for phase in ("pp", "tg") for side in launch.seconds[phase] for seconds in side) > 0
    assert len(first.peak_rss_bytes) == 2 and min(first.peak_rss_bytes) > 50 << 20 and second.peak_rss_bytes is None


def test_a_tree_without_the_imports_of_the_worker_is_too_old(tmp_path):
    check_worker(Tree("this tree", Path(sys.executable), tmp_path))
    venv.create(tmp_path, symlinks=True)  # has no packages at all
    with pytest.raises(InputError, match=r"0123abcdef is too old to be timed from here: it has no qbench\."):
        check_worker(Tree("0123abcdef", tmp_path / "bin" / "python", tmp_path))


def test_cases_share_processes_if_possible():
    subjects = [
        subject("a"),
        subject("b", threads=2),
        subject("c"),
        subject("d", isa="avx2"),
        subject("e", kv_format="kv-int8"),
    ]
    assert [[one.name for one in group] for group in grouped(subjects)] == [["a", "c", "e"], ["b"], ["d"]]
    assert [one.clock for one in subjects[:2]] == ["cpu", "wall"]
    assert subjects[0].tokens == {"pp": 8, "tg": 4}


@pytest.fixture
def turns(monkeypatch):
    """Notes the order of the subjects in each group that is launched."""
    orders = []

    def launch_group(order):
        orders.append([one.name for one in order])
        return [Launch({"pp": [[1.0]]}, [7] if i == 0 else None) for i, _ in enumerate(order)]

    monkeypatch.setattr(module, "launch_group", launch_group)
    return orders


def test_each_is_first_in_its_turn_which_gives_its_peak(turns):
    found = launch_all([[subject("a"), subject("b"), subject("c")]], lambda found: False, least=6, budget_s=0)
    assert turns == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]] * 2
    assert {name: (len(of), peaks_of(of, 0)) for name, of in found.items()} == {name: (6, [7, 7]) for name in "abc"}


def test_it_goes_on_until_enough_is_seen(turns):
    def enough(found):
        return len(found["a"]) >= 5

    assert len(launch_all([[subject("a")]], enough, least=2, budget_s=60)["a"]) == 5
    assert len(launch_all([[subject("a")]], enough, least=7, budget_s=60)["a"]) == 7
    assert len(launch_all([[subject("a")]], enough, least=2, budget_s=0)["a"]) == 2
