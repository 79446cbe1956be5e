"""A sweep on a real cluster of two nodes on this machine, one of which is killed while it measures."""

import os
import shutil
import sys
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from support.documents import read_records

from qbench.measure.host.commit import CodeVersion
from qbench.measure.host.machine import machine
from qbench.sweeps.ray.ray_cluster import Cluster
from qbench.sweeps.ray.ray_executor import RayExecutor
from qbench.sweeps.ray.ray_node import sweeps_folder
from qbench.sweeps.suite.load_suite import load_suite
from qbench.sweeps.sweep import run_sweep
from quant.errors import InputError

ray = pytest.importorskip("ray", reason="ray is not installed: sweeps on a cluster are not tested")

STUB = (sys.executable, str(Path(__file__).parents[1] / "stub_worker.py"))
ROOM = {"num_cpus": 2, "object_store_memory": 80 * 2**20, "include_dashboard": False}
# A killed node, whose port refuses, is missed after 1.5 s, not after 30 s; a busy one has 30 s to answer.
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 30_000,
    "health_check_failure_threshold": 3,
}
# Two recipes whose speed is measured too, six that only have a quality.
SUITE = """
name: cluster
models: [ref:llama]
recipes: [bf16, q8_0, q6_k, q5_k_m, rtn-w8, q4_k_m, q4_0, q3_k_m]
threads: 1
eval: {max_windows: 1}
bench: {pp: 8}
exclude: [{recipe: "q*", bench: true}]
"""


@pytest.fixture(scope="module")
def cluster():
    """A head and a second node, and no trace of them afterwards."""
    from ray.cluster_utils import Cluster as LocalCluster

    with pytest.MonkeyPatch.context() as patch:  # the nodes take the environment that they are started in
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("QBENCH_STUB_PAUSE_S", "0.1")
        folder = tempfile.mkdtemp(prefix="qb")  # short: the paths of sockets in it have at most 107 bytes
        patch.setenv("RAY_TMPDIR", folder)  # Ray leaves the last cluster's address there, in this folder:
        os.mkdir(os.path.join(folder, "ray"))
        try:
            yield from two_nodes(LocalCluster, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def two_nodes(LocalCluster, folder: str):
    of_head = {"_system_config": HEALTH, "temp_dir": folder}
    nodes = LocalCluster(initialize_head=True, head_node_args=ROOM | of_head)
    try:
        yield nodes, nodes.add_node(**ROOM)
    finally:
        ray.shutdown()
        nodes.shutdown()


def test_a_node_of_other_code_is_refused(cluster, monkeypatch):
    nodes, _ = cluster
    monkeypatch.setattr(
        import_module("qbench.sweeps.ray.ray_cluster"), "code_version", lambda: CodeVersion(None, None, "another")
    )
    with pytest.raises(InputError, match="runs other code than this machine: install the same commit there"):
        Cluster(nodes.address)
    assert not ray.is_initialized()


def node_of(folder: str) -> str:
    """The beginning of the node's id, which a folder of it is named by"""
    return folder.rpartition("-")[0]


def folders_of(rows, with_bench: bool) -> list[tuple[str, list[float]]]:
    """(node, when it measured) of the rows whose speed was measured, or of the others."""
    chosen = [row["metrics"] for row in rows if (row["case"]["bench"] is not None) == with_bench]
    return [(node_of(metrics["folder"]), metrics["span"]) for metrics in chosen]


@pytest.mark.exhaustive("eight seconds; workers that die are in every run")
def test_a_node_that_is_killed_costs_no_row(tmp_path, cluster, capfd):
    nodes, second = cluster
    suite_file = tmp_path / "suite.yaml"
    suite_file.write_text(SUITE)
    suite, executors, placed, done = load_suite(suite_file), [], [], []

    def executor(folder: Path) -> RayExecutor:
        executors.append(RayExecutor(folder, Cluster(nodes.address), STUB))
        return executors[-1]

    def kill_in_the_middle(event) -> None:
        """Once the second node has measured a case and is at another one."""
        if event.kind == "progress":
            placed.append(event.index)
        if event.kind == "done":
            done.append(event.record.to_json()["metrics"]["folder"])
        running = [one.node.name for one in executors[0].running.values()]
        if any(second.node_id.startswith(node_of(folder)) for folder in done) and second.node_id in running:
            if second in nodes.worker_nodes:
                nodes.remove_node(second, allow_graceful=False)

    try:
        result = run_sweep(suite, tmp_path / "run", kill_in_the_middle, executor=executor)
        assert second not in nodes.worker_nodes and len(placed) > 8, "nothing was lost: the test tests too little"
        assert (result.measured, result.skipped, result.failed, result.left) == (8, 0, 0, 0)
        rows = list(read_records(result.records))
        expected = {(model, recipe) for model in suite.axes["model"] for recipe in suite.axes["recipe"]}
        assert Counter((row["case"]["model"], row["case"]["recipe"]) for row in rows) == Counter(expected)
        assert all(row["machine"] == machine().to_json() and row["status"] == "ok" for row in rows)
        # Nothing else was measured on a node while a speed was.
        speeds, others = folders_of(rows, True), folders_of(rows, False)
        for i, (node, (start, end)) in enumerate(speeds):
            for other, (begun, ended) in [*speeds[:i], *speeds[i + 1 :], *others]:
                assert other != node or end <= begun or ended <= start
        assert len({node for node, _ in speeds + others}) == 2
        again = run_sweep(suite, tmp_path / "run", executor=executor)
        assert (again.measured, again.skipped) == (0, 8)
        assert capfd.readouterr().out == ""
    finally:
        for one in executors:
            shutil.rmtree(sweeps_folder() / one.sweep, ignore_errors=True)
