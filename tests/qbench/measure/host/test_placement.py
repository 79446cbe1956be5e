import os

import pytest

from qbench.measure.host.placement import Placement, cpu_list, parse_cpu_list, placement

LISTS = [({0}, "0"), ({0, 1}, "0-1"), ({3, 0, 2, 1, 8}, "0-3,8"), ({5, 7, 9, 10}, "5,7,9-10"), (set(), "")]


@pytest.mark.parametrize("cpus, text", LISTS, ids=[text or "none" for _, text in LISTS])
def test_cpu_lists(cpus, text):
    assert cpu_list(cpus) == text
    assert parse_cpu_list(text + "\n") == cpus


@pytest.mark.parametrize(
    "cpus, expected", [({1}, [0]), ({4, 5}, [1]), ({3, 4}, [0, 1]), ({99}, None)], ids=["0", "1", "both", "none"]
)
def test_numa_nodes(tmp_path, cpus, expected):
    for node, text in enumerate(("0-3\n", "4-7\n")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(text)
    assert placement(cpus, tmp_path) == Placement(cpu_list(cpus), expected)


def test_a_system_without_placement_files_has_no_numa_nodes(tmp_path):
    assert placement({0}, tmp_path / "absent").numa_nodes is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_this_process():
    allowed = os.sched_getaffinity(0)
    one = min(allowed)
    try:
        os.sched_setaffinity(0, {one})
        assert placement().affinity == str(one)
    finally:
        os.sched_setaffinity(0, allowed)
