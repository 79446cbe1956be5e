"""Gates of real processes, minutes each: `pytest --benchmark-only tests/qbench/gate/test_real_launches.py`."""

from pathlib import Path

import pytest
from support import slow_worker

from qbench.gate import launches as module
from qbench.gate.check import judge
from qbench.gate.measure import measure_suite, this_tree
from qbench.gate.options import GateOptions, suite_file
from qbench.gate.pairing import Pair, names_of
from qbench.gate.timed import in_turn
from qbench.speed.timed_process import speed_process

pytestmark = pytest.mark.timeout(0)

RUNS = 3
BUDGET_S = 300.0


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    """A gate of this tree against itself: its checks of speed and memory, judged."""
    tree, suite = this_tree(tmp_path_factory.mktemp("gate")), suite_file("ci")
    rows = measure_suite(tree, suite)
    pairs = [Pair(name, row, row) for name, row in zip(names_of([row.model_case for row in rows]), rows, strict=True)]
    options = GateOptions(suite, "itself", budget_s=BUDGET_S)
    return lambda: judge(in_turn(pairs, (tree, tree), options, [], print)[0])


def test_unchanged_code_is_seldom_red(benchmark, gate):
    """One red gate of three has a probability of 14 % at most; two, of less than 1 %."""
    gates = benchmark.pedantic(lambda: [gate() for _ in range(RUNS)], rounds=1)
    assert sum(any(check.verdict == "worse" for check in checks) for checks in gates) <= 1


def test_five_percent_more_time_is_red(benchmark, gate, monkeypatch):
    sides = []

    def process(subject, tree, artifact):
        """The second of each pair is the slow one."""
        sides.append(artifact)
        worker = module.WORKER_FILE if len(sides) % 2 else slow_worker.__file__
        how = {"clock": subject.clock, "env": tree.env}
        return speed_process(str(artifact), subject.options, command=(str(tree.python), "-P", worker), **how)

    monkeypatch.setattr(module, "_process", process)
    gates = benchmark.pedantic(lambda: [gate() for _ in range(RUNS)], rounds=1)
    assert Path(slow_worker.__file__).exists() and len(sides) % 2 == 0
    red = [[check.metric for check in checks if check.verdict == "worse" and check.gate == "speed"] for checks in gates]
    assert all(red), red
