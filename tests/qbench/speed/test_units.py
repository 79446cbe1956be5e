"""The rule of the roofline's operations, on machines whose rates are given."""

import os
import subprocess
import sys

import pytest

from qbench.kernels.attention_benchmarks import SCALES, operands_of_store
from qbench.speed import peaks as module
from qbench.speed.operands import operands_of_attention, operands_of_linear
from qbench.speed.peaks import measure_op_peaks, strongest_unit
from qbench.speed.units import Unit, strongest
from quant.kv import KV_FORMATS

# TOPS of two threads
GRANITE_RAPIDS = {"int8": 14.2, "int16": 0.5, "bf16": 7.1, "fp32": 0.5}
ZEN_4 = {"int8": 0.93, "int16": 0.46, "bf16": 0.45, "fp32": 0.23}
ICE_LAKE = {"int8": 0.9, "int16": 0.45, "fp32": 0.22}  # VNNI, without products of bfloat16


@pytest.mark.parametrize(
    "machine, units",
    [
        (GRANITE_RAPIDS, {"int8": "int8", "int16": "bf16", "bf16": "bf16", "fp32": "fp32"}),
        (ZEN_4, {"int8": "int8", "int16": "int16", "bf16": "bf16", "fp32": "fp32"}),
        (ICE_LAKE, {"int8": "int8", "int16": "int16", "bf16": "fp32", "fp32": "fp32"}),
    ],
)
def test_the_fastest_unit_that_takes_the_operands_is_the_bound(machine, units):
    assert {operands: strongest(operands, machine) for operands in units} == units


def test_an_unknown_rate_could_be_the_strongest():
    rates = GRANITE_RAPIDS | {"bf16": None}
    assert [strongest(operands, rates) for operands in ("int8", "bf16", "fp32")] == [None, None, "fp32"]


@pytest.mark.parametrize(
    "names, operands",
    [
        (("q4_0", "q4_k", "q6_k", "q8_0", "iq4_xs", "mxfp4", "w4g128", "w8", "w8a8", "llm-int8", "trellis-w2"), "int8"),
        (("f16", "bf16", "fp8-w8a8", "fp8-w8a16"), "bf16"),
        (("f32",), "fp32"),
    ],
)
def test_operands_of_linears(names, operands):
    assert {operands_of_linear(name) for name in names} == {operands}
    assert {operands_of_linear(name, "reference") for name in names} == {"fp32"}


def test_operands_of_attention():
    by_store = {name: operands_of_store(name) for name in SCALES}
    assert by_store == {"f32": "fp32"} | dict.fromkeys(("f16", "bf16", "e4m3", "e5m2"), "bf16") | dict.fromkeys(
        ("int8", "int4", "kivi4", "kivi2"), "int16"
    )
    assert operands_of_attention(KV_FORMATS["kv-int4-kc"]) == "int16"
    assert operands_of_attention(KV_FORMATS["kv-f16"], "reference") == "fp32"


@pytest.fixture
def granite_rapids(monkeypatch):
    isas = {"int8": "amx", "int16": "avx512_vnni", "bf16": "amx", "fp32": "avx512"}
    asked = []
    monkeypatch.setattr(module, "unit_isas", lambda: isas)
    monkeypatch.setattr(module, "_largest", {})
    monkeypatch.setattr(module, "measure_peak", lambda name, threads: asked.append(name) or GRANITE_RAPIDS[name])
    return asked


def test_a_unit_has_the_name_of_its_instruction_set(granite_rapids):
    assert measure_op_peaks(2) == {
        "int8": Unit("amx int8", 14.2),
        "int16": Unit("amx bf16", 7.1),
        "bf16": Unit("amx bf16", 7.1),
        "fp32": Unit("avx512 fp32", 0.5),
    }


def test_only_the_strongest_unit_is_measured_again(granite_rapids):
    assert strongest_unit("bf16", 2) == strongest_unit("bf16", 2) == Unit("amx bf16", 7.1)
    assert granite_rapids == ["bf16", "fp32", "bf16", "bf16"]


@pytest.mark.parametrize("cpu, names", [("avx2", ["int8", "int16", "fp32"]), ("scalar", ["int8", "fp32"])])
def test_units_match_the_instructions_of_a_pretended_machine(cpu, names):
    look = "from qbench.speed.peaks import unit_isas; print(*unit_isas().items(), sep=';')"
    told = subprocess.check_output([sys.executable, "-c", look], env=os.environ | {"QBENCH_CPU": cpu}, text=True)
    assert told.strip() == ";".join(str((name, cpu)) for name in names)
