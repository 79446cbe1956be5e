import json

import numpy as np
import pytest

from qbench.kernels import registry
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import Deviation


def test_all_kernels_are_right_here(qbench):
    outcome = qbench("selftest", "--json")
    result = json.loads(outcome.out)
    assert outcome.status == 0 and result["green"] and result["wrong"] == 0
    assert all(row["num_problems"] > 0 for row in result["rows"] if row["status"] == "ok")


@pytest.fixture
def wrong_kernel(monkeypatch):
    problem = Problem("K=1", lambda isa: (np.zeros(1), isa), lambda got: Deviation(0.5, 0.25))
    monkeypatch.setattr(registry, "kernels", lambda: (Kernel("gptq", lambda: [problem]),))


def test_wrong_kernel_ends_in_1(qbench, wrong_kernel):
    outcome = qbench("selftest", "--only", "gptq")
    assert outcome.status == 1 and "WRONG" in outcome.out and "RED" in outcome.out
    assert "K=1: error 5.00e-01 of at most 2.50e-01" in outcome.out


def test_part_of_the_ops(qbench):
    outcome = qbench("selftest", "--only", "gptq")
    assert outcome.status == 0 and all(line.startswith("gptq") for line in outcome.out.splitlines()[:-1])
    qbench("selftest", "--only", "gemm").fails_with("no op has 'gemm'")
