"""Each implementation in turn, and the list of instruction sets that a run did not exercise."""

import re
from collections import defaultdict

import numpy as np
import pytest

import cpu_kernels
from cpu_kernels.decode import decode_blocks
from cpu_kernels.encode import encode_blocks

ISAS = ("scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")
RAN = "ran"  # property of a test: (op, instruction set); reports carry it from any process to the summary


def note_run(test: pytest.Item, op: str, isa: str) -> None:
    entry = (RAN, (op, isa))
    if entry not in test.user_properties:
        test.user_properties.append(entry)


@pytest.fixture
def one_thread():
    before = cpu_kernels.get_num_threads()
    cpu_kernels.set_num_threads(1)
    yield
    cpu_kernels.set_num_threads(before)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    """`isa`, unless a test lists its own: each implementation of the module's OP in turn.

    Without an OP: the implementations of linear_q8_0 that round activations to 8 bits, as all block formats have them.
    test_linear_bf16.py has the one of AMX.
    """
    marks = metafunc.definition.iter_markers("parametrize")
    if "isa" in metafunc.fixturenames and not any(re.search(r"\bisa\b", str(mark.args[0])) for mark in marks):
        op = getattr(metafunc.module, "OP", None)
        rows = [row["impl"] for row in cpu_kernels.op_table() if row["op"] == (op or "linear_q8_0")]
        metafunc.parametrize("isa", [impl for impl in rows if op or impl != "amx"], indirect=True)


@pytest.fixture
def isa(request):
    """An implementation; one that this machine lacks is a skip."""
    if request.param not in cpu_kernels.features():
        pytest.skip(f"this machine has no {request.param}")
    return request.param


@pytest.fixture
def matmul(request):
    """PackedLinear.matmul under one implementation, which must say itself that it was the one that ran."""

    def run(packed: cpu_kernels.PackedLinear, x: np.ndarray, isa: str, **kwargs) -> np.ndarray:
        y = packed.matmul(x, isa=isa, **kwargs)
        assert packed.last_isa == isa
        note_run(request.node, "linear", isa)
        return y

    return run


@pytest.fixture
def encode_as(request):
    """An encoder under one implementation, which must say itself that it was the one that ran."""

    def run(isa: str, name: str, blocks: np.ndarray, importance: np.ndarray | None, effort: str) -> np.ndarray:
        data, who = encode_blocks(name, blocks, importance, effort == "best", isa)
        assert who == isa
        note_run(request.node, "encode", isa)
        return data

    return run


@pytest.fixture
def decode_as(request):
    """A decoder under one implementation, which must say itself that it was the one that ran."""

    def run(isa: str, name: str, blocks: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        weights, who = decode_blocks(name, blocks, isa, out)
        assert who == isa
        note_run(request.node, "decode", isa)
        return weights

    return run


def pytest_terminal_summary(terminalreporter):
    ran = defaultdict(set)
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == RAN:
                ran[value[0]].add(value[1])
    if not ran:
        return
    terminalreporter.section("cpu_kernels: exercised")
    rows = {(row["op"], row["impl"]) for row in cpu_kernels.op_table()}
    rows |= {(op.partition("_")[0], impl) for op, impl in rows if op.startswith(("encode_", "decode_", "linear_"))}
    for op, names in ran.items():
        terminalreporter.line(f"{op}: {', '.join(name for name in ISAS if name in names)}")
        for name in ISAS:
            if name in names:
                continue
            reasons = [] if (op, name) in rows else ["no kernel"]
            reasons += [] if name in cpu_kernels.features() else ["not on this machine"]
            terminalreporter.line(f"{op}: NOT exercised: {name} ({', '.join(reasons) or 'its tests did not run'})")
