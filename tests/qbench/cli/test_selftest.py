import json

import numpy as np
import pytest

import cpu_kernels
from qbench.kernels import registry
from qbench.kernels.case import Deviation, Kernel, Problem


@pytest.mark.exhaustive("half a minute; tests/cpu_kernels has each kernel's own tests")
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
    outcome = qbench("selftest", "--only", "gptq", "--verbose")
    assert (
        outcome.status == 0
        and len(outcome.out.splitlines()) > 2
        and all(line.startswith("gptq") for line in outcome.out.splitlines()[:-1])
    )
    qbench("selftest", "--only", "").fails_with("--only: got an empty name, expected part of the name of an op")
    qbench("selftest", "--only", "gemm").fails_with("no op has 'gemm'")


def test_a_line_an_op_names_every_instruction_set(qbench):
    line, _ = qbench("selftest", "--only", "gptq").out.splitlines()
    isas = [row["impl"] for row in cpu_kernels.op_table() if row["op"] == "gptq"]
    assert line.startswith("gptq  ok ") and all(isa in line for isa in isas)
    assert f"{cpu_kernels.chosen_isa('gptq')} chosen: " in line and "error" in line
