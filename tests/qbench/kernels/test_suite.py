"""Suites of kernels: their keys, and that each pattern matches something."""

from pathlib import Path

import pytest
from support.data import KERNEL_SUITES, REPO, written

from qbench.kernels.suite import load_kernel_suite
from qbench.measure.host.machine import available_cores
from quant.errors import InputError

GOOD = "name: small\ncases: [{kernels: linear_q8_0}]\n"


def load(folder: Path, text: str):
    return load_kernel_suite(written(folder / "suite.yaml", text))


def test_a_suite_in_full(tmp_path):
    text = "cases: [{kernels: [linear_q*, moe_q4_k], tokens: [1, 8]}, {kernels: gram, shapes: 2048*}]"
    suite = load(tmp_path, f"name: s\n{text}\nthreads: 1\nclock: cpu\n")
    first, second = suite.cases
    assert (first.kernels, first.tokens, suite.counts) == (("linear_q*", "moe_q4_k"), (1, 8), (1,))
    assert (first.shapes, second.shapes, second.kernels) == (("*",), ("2048*",), ("gram",))
    assert load(tmp_path, GOOD + f"threads: [all, {available_cores()}]").counts == (available_cores(),)


@pytest.mark.parametrize("name", KERNEL_SUITES)
def test_suites_of_the_project_load(name):
    assert load_kernel_suite(REPO / "suites" / f"{name}.yaml").name == name


@pytest.mark.parametrize(
    "text, told",
    [
        pytest.param("cases: [{kernels: gram}]", "name missing; a suite of kernels needs name and cases", id="no name"),
        pytest.param("name: s\ncases: gram", "expected a list of mappings, each with kernels", id="no cases"),
        pytest.param("name: s\ncases: [{tokens: 1}]", r"cases\[0\]: kernels missing", id="no kernels"),
        pytest.param("name: s\ncases: [{kernels: []}]", r"cases\[0\]: kernels is empty", id="empty kernels"),
        pytest.param("name: s\ncases: [{kernels: linear_q8_1}]", "'linear_q8_1' is timed; did you mean", id="unknown"),
        pytest.param("name: s\ncases: [{kernels: gram, tokens: 0}]", "tokens has 0, expected 1 or", id="no tokens"),
        pytest.param("name: s\ncases: [{kernels: gram, isa: x}]", r"cases\[0\]: unknown key 'isa'", id="key of cases"),
        pytest.param(GOOD + "threads: 0", "threads is 0", id="no threads"),
        pytest.param(GOOD + "clock: sun", "unknown clock 'sun'; known: wall, cpu", id="clock"),
        pytest.param(GOOD + "clock: cpu\nthreads: 2", "2 threads also take time while they wait", id="cpu time of two"),
        pytest.param(GOOD + "models: [ref:llama]", "unknown key 'models'", id="key"),
        pytest.param("- q8_0", "got list, expected a mapping", id="no mapping"),
    ],
)
def test_bad_suites_are_refused_with_advice(tmp_path, text, told):
    with pytest.raises(InputError, match=told):
        load(tmp_path, text)
