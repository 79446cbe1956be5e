"""A case on a node, without a cluster."""

import pytest

from qbench.sweep.ray import ray_node


class Runner:
    """Stands for what runs a case: whether it was closed, and how its case ends."""

    def __init__(self, *places) -> None:
        self.closed = False

    def run(self, case, on_stage):
        if case["breaks"]:
            raise RuntimeError("broke")
        return {"metrics": {}, "error": None}

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("breaks", [False, True], ids=["it ends", "it breaks"])
def test_no_worker_outlives_its_case(monkeypatch, tmp_path, breaks):
    runner = Runner()
    monkeypatch.setattr(ray_node, "CaseRunner", lambda *places: runner)
    monkeypatch.setattr(ray_node, "sweeps_folder", lambda: tmp_path)
    try:
        ray_node.run_case({"breaks": breaks}, "sweep/slot", str(tmp_path / "absent"), ())
    except RuntimeError:
        assert breaks
    assert runner.closed
