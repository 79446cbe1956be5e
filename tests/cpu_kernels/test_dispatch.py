import os
import platform
from pathlib import Path

import numpy as np
import pytest
from support.q8_0 import packed_q8_0, random_q8_0

import cpu_kernels

ISAS = ("scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")
CPUINFO = Path("/proc/cpuinfo")

# Linux's names of the CPUID bits of each instruction set; it lists a bit only if it also saves the state. VBMI comes
# with the kernels of bfloat16 (isa.cpp).
FLAGS = {
    "avx2": {"avx", "avx2", "fma", "f16c"},
    "avx_vnni": {"avx_vnni"},
    "avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl"},
    "avx512_vnni": {"avx512_vnni"},
    "avx512_bf16": {"avx512_bf16", "avx512vbmi"},
    "amx": {"amx_tile", "amx_int8", "amx_bf16"},
}


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not CPUINFO.exists(), reason="needs the flags of /proc/cpuinfo on x86-64"
)
def test_features_agree_with_the_kernel():
    line = next(line for line in CPUINFO.read_text().splitlines() if line.startswith("flags"))
    flags = set(line.split(":")[1].split())
    expected = ["scalar"] + [name for name, needed in FLAGS.items() if needed <= flags]
    pretended = os.environ.get("QBENCH_CPU")
    if pretended:  # it masks features of the processor, and adds nothing
        expected = [name for name in expected if ISAS.index(name) <= ISAS.index(pretended)]
    native = [name for name in cpu_kernels.features() if name not in cpu_kernels.emulated_features()]
    assert native == expected


def test_table_is_best_first_and_chooses_the_first_available(monkeypatch):
    monkeypatch.delenv("QBENCH_ISA", raising=False)
    table = cpu_kernels.op_table()
    for op in {row["op"] for row in table}:
        rows = [row for row in table if row["op"] == op]
        ranks = [ISAS.index(row["impl"]) for row in rows]
        assert ranks == sorted(ranks, reverse=True)
        assert rows[-1]["impl"] == "scalar"
        assert [row["chosen"] for row in rows].index(True) == [row["available"] for row in rows].index(True)
        assert sum(row["chosen"] for row in rows) == 1
        for row in rows:
            assert row["available"] == (set(row["required"]) <= set(cpu_kernels.features()))


def test_environment_forces_the_isa_that_runs(monkeypatch, isa):
    packed = packed_q8_0(random_q8_0(16, 64))
    monkeypatch.setenv("QBENCH_ISA", isa)
    assert cpu_kernels.chosen_isa("linear_q8_0") == isa
    packed.matmul(np.ones((128, 64), np.float32))  # AMX leaves fewer to AVX-512 VNNI
    assert packed.last_isa == isa


@pytest.mark.skipif("amx" not in cpu_kernels.features(), reason="this machine has no amx")
def test_few_tokens_take_the_next_best_if_amx_has_only_tiles(monkeypatch):
    packed = packed_q8_0(random_q8_0(16, 64))
    monkeypatch.setenv("QBENCH_ISA", "amx")
    assert packed.choice(1) == ("avx512_vnni", "direct")
    assert packed.choice(27) == packed.choice(512, path="tile") == ("avx512_vnni", "tile")
    assert packed.choice(28) == packed.choice(1, path="bf16") == packed.choice(1, isa="amx") == ("amx", "bf16")
    for path in ("direct", "tile"):
        with pytest.raises(RuntimeError, match=rf"linear_q8_0 on the {path} path has no amx .* it has avx512_vnni"):
            packed.choice(1, isa="amx", path=path)
    with pytest.raises(RuntimeError, match=r"linear_q8_0 on the bf16 path has no avx512_vnni .* it has amx"):
        packed.choice(1, isa="avx512_vnni", path="bf16")
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "bf16")
    assert packed.choice(1) == ("amx", "bf16")


@pytest.mark.skipif("avx512_bf16" not in cpu_kernels.features(), reason="this machine has no avx512_bf16")
def test_environment_takes_the_best_at_or_below(monkeypatch):
    monkeypatch.setenv("QBENCH_ISA", "avx512_bf16")
    assert cpu_kernels.chosen_isa("linear_q8_0") == "avx512_vnni"
    monkeypatch.setenv("QBENCH_ISA", "avx512")
    assert cpu_kernels.chosen_isa("linear_q8_0") == "avx512"


def test_call_overrides_environment(monkeypatch, isa):
    packed = packed_q8_0(random_q8_0(16, 64))
    monkeypatch.setenv("QBENCH_ISA", "scalar")
    packed.matmul(np.ones((1, 64), np.float32), isa=isa)
    assert packed.last_isa == isa


def test_unknown_isa_is_refused(monkeypatch):
    packed = packed_q8_0(random_q8_0(16, 64))
    x = np.ones((1, 64), np.float32)
    with pytest.raises(RuntimeError, match=r"isa=sse9: unknown.*this machine has scalar"):
        packed.matmul(x, isa="sse9")
    monkeypatch.setenv("QBENCH_ISA", "sse9")
    with pytest.raises(RuntimeError, match=r"QBENCH_ISA=sse9: unknown.*this machine has scalar"):
        packed.matmul(x)
    assert packed.last_isa is None


@pytest.mark.skipif(len(cpu_kernels.features()) == len(ISAS), reason="this machine has every instruction set")
def test_isa_of_another_machine_is_refused(monkeypatch):
    absent = next(name for name in ISAS if name not in cpu_kernels.features())
    packed = packed_q8_0(random_q8_0(16, 64))
    monkeypatch.setenv("QBENCH_ISA", absent)
    with pytest.raises(RuntimeError, match=f"QBENCH_ISA={absent}: this machine cannot; it has scalar"):
        packed.matmul(np.ones((1, 64), np.float32))


@pytest.mark.skipif("avx512_bf16" not in cpu_kernels.features(), reason="this machine has no avx512_bf16")
def test_isa_without_a_kernel_is_refused():
    packed = packed_q8_0(random_q8_0(16, 64))
    with pytest.raises(RuntimeError, match=r"linear_q8_0 has no avx512_bf16 implementation; on this machine .*scalar"):
        packed.matmul(np.ones((1, 64), np.float32), isa="avx512_bf16")


def test_chosen_isa_of_an_unknown_op_lists_the_ops():
    with pytest.raises(ValueError, match="got gemm, expected one of linear_q4_0"):
        cpu_kernels.chosen_isa("gemm")
