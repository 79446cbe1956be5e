"""Rounds of old and new memory: the timed products, and the time that the host took."""

from types import SimpleNamespace

import pytest

from qbench.speed import memory_rounds
from quant.extension import has_cpu_kernels


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")
def test_kept_weights_are_made_once_and_new_ones_each_round(monkeypatch):
    made, timed = [], []
    monkeypatch.setattr(memory_rounds, "_weight", lambda: made.append(object()) or made[-1])
    monkeypatch.setattr(memory_rounds, "_bandwidth", lambda weight: timed.append(made.index(weight)) or len(timed))
    found = memory_rounds.memory_rounds(3)
    assert timed == [0, 1, 0, 2, 0, 3]
    assert (found.kept, found.new) == ([1, 3, 5], [2, 4, 6])


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")
def test_a_bandwidth_is_of_the_bytes_that_a_product_reads(monkeypatch):
    monkeypatch.setattr(memory_rounds, "ROWS", 64)
    monkeypatch.setattr(memory_rounds, "FEATURES", 64)
    ticks = iter(range(0, 100, 2))
    monkeypatch.setattr(memory_rounds.time, "thread_time", lambda: next(ticks))
    assert memory_rounds._bandwidth(memory_rounds._weight()) == 64 * 64 // 32 * 34 / 2


def test_time_that_the_host_gave_to_others():
    class Times(SimpleNamespace):
        def __iter__(self):
            return iter(vars(self).values())

    assert memory_rounds.stolen_share(Times(user=5.0, steal=1.0), Times(user=8.0, steal=2.0)) == 0.25
    assert memory_rounds.stolen_share(Times(user=5.0), Times(user=8.0)) is None
