"""The unit of each op by number of tokens is the one that runs."""

import numpy as np
import pytest

import cpu_kernels
from qbench.kernels.case import random_weight
from qbench.kernels.choices import (
    OF_EXPERTS,
    TOKENS,
    Choice,
    choices,
    of_attention,
    of_experts,
    of_latents,
    of_linear,
    of_llm_int8,
)
from qbench.kernels.linear import packed_formats
from quant.formats import IntGroupFormat, get_format

FORCED = [name for name in ("scalar", "avx2", "avx512_vnni", "amx") if name in cpu_kernels.features()]


def test_every_op_has_a_unit_for_each_number_of_tokens():
    found = list(choices())
    names = {(one.op, one.format) for one in found}
    assert len(found) == len(names) * len(TOKENS) and {one.tokens for one in found} == set(TOKENS)
    assert {one.isa for one in found} <= set(cpu_kernels.features())
    assert {op for op, _ in names} == {"linear", "experts", "attention", "latents"}
    one_of_a_kind = [name for name in packed_formats() if not isinstance(get_format(name), IntGroupFormat)]
    assert names >= {("linear", name) for name in (*one_of_a_kind, "w4g128", "w8", "llm_int8")}


@pytest.mark.parametrize(
    "name", ["q4_0", "q4_k", "q6_k", "iq4_xs", "w4g128", "trellis-w2", "w8a8", "bf16", "f16", "f32"]
)
def test_zeros_run_where_a_real_weight_runs(name):
    qtensor = random_weight(get_format(name), (80, 512), np.random.default_rng(0))
    weight = cpu_kernels.PackedLinear(name, qtensor.parts | qtensor.shared, qtensor.shape)
    for found in of_linear(name):
        weight.matmul(np.ones((found.tokens, 512), np.float32))
        assert found == Choice("linear", name, found.tokens, weight.last_isa, weight.choice(found.tokens)[1])


@pytest.mark.parametrize("isa", FORCED)
def test_a_forced_instruction_set_is_shown(isa, monkeypatch):
    """An op without kernels of this set has those of a lower one."""
    monkeypatch.setenv("QBENCH_ISA", isa)
    order = cpu_kernels.features()
    found = [*of_linear("q8_0"), *of_llm_int8(), *of_experts("q8_0"), *of_attention("f16"), *of_latents("f16")]
    assert all(order.index(one.isa) <= order.index(isa) for one in found)
    linear = [one for one in found if one.op == "linear"]
    assert isa in {one.isa for one in linear}
    if isa == "scalar":
        assert {one.isa for one in found} == {"scalar"}


def test_experts_are_asked_about_formats_that_they_hold():
    assert all(cpu_kernels.has_packed_linear(name) for name in OF_EXPERTS)
