"""A case on a node, without a cluster."""

import pytest

from qbench.run.case import Case
from qbench.sweeps.case_runner import Outcome
from qbench.sweeps.ray import ray_node


class Runner:
    """Replaces the runner of a case: knows whether it was closed, and how its case ends."""

    def __init__(self, *places) -> None:
        self.closed = False

    def run(self, case, on_stage):
        if dict(case.rest)["breaks"]:
            raise RuntimeError("broke")
        return Outcome()

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("breaks", [False, True], ids=["it ends", "it breaks"])
def test_no_worker_outlives_its_case(monkeypatch, tmp_path, breaks):
    runner = Runner()
    monkeypatch.setattr(ray_node, "CaseRunner", lambda *places: runner)
    monkeypatch.setattr(ray_node, "sweeps_folder", lambda: tmp_path)
    try:
        case = Case.from_json({"model": "ref:llama", "breaks": breaks})
        ray_node.run_case(case, "sweep/slot", str(tmp_path / "absent"), ())
    except RuntimeError:
        assert breaks
    assert runner.closed
