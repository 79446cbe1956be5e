"""Suites of kernels: what they may say, and that each pattern means something."""

from pathlib import Path

import pytest
from support.data import KERNEL_SUITES, REPO

from qbench.harness.host.machine import available_cores
from qbench.kernels.suite import load_kernel_suite
from quant.errors import InputError

GOOD = "name: small\nkernels: linear_q8_0\n"


def load(folder: Path, text: str):
    path = folder / "suite.yaml"
    path.write_text(text)
    return load_kernel_suite(path)


def test_a_suite_in_full(tmp_path):
    suite = load(tmp_path, "name: s\nkernels: [linear_q*, moe_q4_k]\ntokens: [1, 8]\nthreads: 1\nclock: cpu\n")
    assert (suite.kernels, suite.tokens, suite.counts) == (("linear_q*", "moe_q4_k"), (1, 8), (1,))
    assert load(tmp_path, GOOD + f"threads: [all, {available_cores()}]").counts == (available_cores(),)


@pytest.mark.parametrize("name", KERNEL_SUITES)
def test_those_of_the_project_load(name):
    assert load_kernel_suite(REPO / "suites" / f"{name}.yaml").name == name


@pytest.mark.parametrize(
    "text, told",
    [
        pytest.param("kernels: linear_q8_0", "name missing; a suite of kernels needs name and kernels", id="no name"),
        pytest.param("name: s\nkernels: []", "kernels is empty", id="no kernels"),
        pytest.param("name: s\nkernels: linear_q8_1", "no kernel 'linear_q8_1' is timed; did you mean", id="unknown"),
        pytest.param(GOOD + "tokens: 0", "tokens has 0, expected 1 or more", id="no tokens"),
        pytest.param(GOOD + "threads: 0", "threads is 0", id="no threads"),
        pytest.param(GOOD + "clock: sun", "unknown clock 'sun'; known: wall, cpu", id="clock"),
        pytest.param(GOOD + "clock: cpu\nthreads: 2", "2 threads also take time while they wait", id="cpu time of two"),
        pytest.param(GOOD + "models: [ref:llama]", "unknown key 'models'", id="key"),
        pytest.param("- q8_0", "got list, expected a mapping", id="no mapping"),
    ],
)
def test_bad_suites_are_refused_with_what_to_do(tmp_path, text, told):
    with pytest.raises(InputError, match=told):
        load(tmp_path, text)
