import math
from dataclasses import replace

import pytest
import torch
from support.close import assert_close
from support.gpu_ops import call_op

from gpu_kernels.gemm.grouped_moe_gemm import Operands, grouped_moe_gemm, grouped_moe_gemm_ref
from gpu_kernels.gemm.grouped_moe_gemm_problems import Layer, _agrees, _operands, _reference
from gpu_kernels.gemm.grouped_moe_gemm_triton import grouped_moe_gemm_triton, row
from gpu_kernels.gemm.w8a8_gemm_configs import Config
from gpu_kernels.gemm.weight_only_configs import Config as WordsConfig
from gpu_kernels.gemm.weight_only_problems import Kind
from gpu_kernels.gemm.words_experts import expert_ref, hidden_in_order, stack_experts
from gpu_kernels.gemm.words_layout import pack_words, unpack_words_ref

SMALL = Layer(5, 4, 2, 35, 48)


def make(layer=SMALL, device="cpu", kind=None):
    return _operands(layer, kind, torch.float16, device)


def check(run, operands):
    y = torch.full_like(operands["x"], torch.nan)
    run(grouped_moe_gemm_triton, Operands(**operands), y)
    assert _agrees(y, _reference(**operands))


def test_ref_equals_textbook_loop():
    operands = make(Layer(3, 4, 2, 5, 6))
    x, chosen, routing_weight, gate_up, down = (tensor.tolist() for tensor in operands.values())
    expected = torch.zeros(3, 6, dtype=torch.float64)
    for m in range(3):
        for place, expert in enumerate(chosen[m]):
            rows = [sum(a * b for a, b in zip(x[m], row, strict=True)) for row in gate_up[expert]]
            hidden = [gate / (1 + math.exp(-gate)) * up for gate, up in zip(rows[:5], rows[5:], strict=True)]
            for k in range(6):
                share = sum(h * w for h, w in zip(hidden, down[expert][k], strict=True))
                expected[m, k] += routing_weight[m][place] * share
    assert_close(grouped_moe_gemm_ref(**operands), expected, rtol=2**-44, atol=2**-48)
    assert_close(_reference(**operands)[0], expected, rtol=2**-44, atol=2**-48)


@pytest.mark.parametrize("layer", [Layer(1, 1, 1, 1, 3), Layer(3, 3, 3, 63, 131), Layer(40, 2, 1, 131, 63)], ids=str)
def test_odd_shapes(run, layer):
    check(run, make(layer, run.device))


KINDS = [Kind(4, 128), Kind(4, 32, symmetric=False), Kind(8, None), Kind(8, 64, symmetric=False)]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"w{kind.bits} {kind}")


@kinds
def test_ref_unpacks_words(kind):
    """Each expert as pack_words makes it from codes, and as a plain matrix."""
    generator = torch.Generator().manual_seed(0)
    operands, packed = make(Layer(5, 3, 2, 128, 256)), {}
    for name in ("gate_up", "down"):
        N, K = operands[name].shape[1:]
        groups, end = (1 if kind.group_size is None else K // kind.group_size), 2 ** (kind.bits - 1)
        experts, plain = [], []
        for _ in range(3):
            q = torch.randint(-end, end, (N, K), generator=generator, dtype=torch.int8)
            zero = torch.randint(-end, end, (N, groups), generator=generator, dtype=torch.int8)
            scale = torch.rand(N, groups, generator=generator) / end
            experts.append(pack_words(q, scale, None if kind.symmetric else zero, bits=kind.bits))
            offset = 0 if kind.symmetric else zero.double().repeat_interleave(K // groups, dim=1)
            plain.append(scale.double().repeat_interleave(K // groups, dim=1) * (q.double() - offset))
        packed[name], operands[name] = stack_experts(experts), torch.stack(plain)
    expected = grouped_moe_gemm_ref(**operands)
    assert_close(grouped_moe_gemm_ref(**operands | packed), expected, rtol=2**-40, atol=2**-40)


@kinds
def test_words_of_partial_tiles_match_the_reference(run, kind):
    """Part of a tile of tokens, rows past gate's, a group of features past the last whole block."""
    check(run, make(Layer(19, 3, 2, 160 if kind.group_size == 32 else 128, 64 * 6), run.device, kind))


def test_words_of_odd_channels(run):
    check(run, make(Layer(3, 3, 3, 63, 131), run.device, Kind(8, None)))


def test_words_of_experts_without_tokens(run):
    operands = make(Layer(5, 4, 1, 128, 128), run.device, Kind(4, 128))
    operands["chosen"] = torch.full_like(operands["chosen"], 2)
    for weights in (operands["gate_up"], operands["down"]):
        weights.scale[[0, 1, 3]] = torch.nan
    check(run, operands)


@pytest.mark.parametrize("bits, form", [(16, Config), (8, WordsConfig), (4, WordsConfig)])
def test_tile_shapes_are_of_the_weights_form(bits, form):
    """Any of them gives the right result: they differ in which of their numbers counts tokens."""
    for tokens_per_expert in (1, 1000):
        assert {type(config) for config in row(90, tokens_per_expert, bits)[1]} == {form}


def test_experts_that_do_not_stack():
    one, other = (pack_words(torch.zeros(4, 64, dtype=torch.int8), torch.ones(4, groups)) for groups in (1, 2))
    with pytest.raises(ValueError, match="got 1 shapes and 2 forms, expected one of each"):
        stack_experts([one, other])
    with pytest.raises(NotImplementedError, match="got groups of 48 in 4 bits, expected one of"):
        replace(stack_experts([one]), group_size=48)


def test_experts_in_act_order_may_mix_with_unordered_ones():
    """Each is as `pack_words` made it from its own g_idx."""
    generator = torch.Generator().manual_seed(0)
    q, scale = torch.randint(-8, 8, (4, 128), generator=generator, dtype=torch.int8), torch.rand(4, 4)
    orders = [torch.randperm(128, generator=generator) // 32, None, torch.arange(128).flip(0) // 32]
    experts = [pack_words(q, scale, g_idx=g_idx) for g_idx in orders]
    stacked = stack_experts(experts)
    for number, expert in enumerate(experts):
        assert torch.equal(expert_ref(stacked, number), unpack_words_ref(expert))
    assert stack_experts(experts[1:2]).order is None


@pytest.mark.parametrize("symmetric", [True, False])
def test_hidden_in_the_order_of_down(symmetric):
    """Rows of gate and up that moved give the same sums without an order of down."""
    operands = make(Layer(5, 3, 2, 128, 256), kind=Kind(4, 64, symmetric, act_order=True))
    gate_up, down = hidden_in_order(operands["gate_up"], operands["down"])
    assert down.order is None and gate_up.order is not None
    moved = grouped_moe_gemm_ref(**operands | {"gate_up": gate_up, "down": down})
    assert_close(moved, grouped_moe_gemm_ref(**operands), rtol=2**-40, atol=2**-40)
    assert hidden_in_order(gate_up, down) == (gate_up, down)


def test_experts_of_another_order_are_refused():
    operands = make(Layer(5, 3, 2, 128, 256), kind=Kind(4, 64, act_order=True))
    wrong = replace(operands["down"], order=operands["down"].order.long())
    with pytest.raises(TypeError, match=r"down\.order torch\.int64"):
        Operands(**operands | {"down": wrong})


def test_empty_experts_and_one_with_all(run):
    operands = make(Layer(37, 6, 1, 35, 48), run.device)
    operands["chosen"] = torch.full_like(operands["chosen"], 4)
    operands["gate_up"][:4], operands["down"][5] = torch.nan, torch.nan  # no token meets them
    check(run, operands)


def test_the_oracle_and_the_bound_distinguish_experts(run):
    operands = make(device=run.device)
    y = torch.full_like(operands["x"], torch.nan)
    run(grouped_moe_gemm_triton, Operands(**operands), y)
    operands["chosen"] = (operands["chosen"] + 1) % 4
    assert not _agrees(y, _reference(**operands))


def test_a_token_does_not_depend_on_its_batch(run):
    operands = make(Layer(16, 4, 2, 35, 48), run.device)
    results = []
    for M in (16, 3):
        y = torch.empty_like(operands["x"][:M])
        few = [operands[name][:M] for name in ("x", "chosen", "routing_weight")]
        run(grouped_moe_gemm_triton, Operands(*few, operands["gate_up"], operands["down"]), y)
        results.append(y[:3])
    assert torch.equal(*results)


def test_nan_stays_in_its_token(run):
    operands = make(device=run.device)
    operands["x"][2, 7] = torch.nan
    y = torch.zeros_like(operands["x"])
    run(grouped_moe_gemm_triton, Operands(**operands), y)
    assert y[2].isnan().all() and y[[0, 1, 3, 4]].isfinite().all()


def test_public_function(run):
    operands = make(device=run.device)
    for impl in ("triton", "reference"):
        assert _agrees(run(grouped_moe_gemm, Operands(**operands), impl=impl), _reference(**operands))
    none = {name: operands[name][:0] for name in ("x", "chosen", "routing_weight")}
    assert grouped_moe_gemm(Operands(**operands | none)).shape == (0, 48)
    no_places = {name: operands[name][:, :0] for name in ("chosen", "routing_weight")}
    assert (grouped_moe_gemm(Operands(**operands | no_places)) == 0).all()


W8 = Kind(8, None)


def words_of(operands):
    return {name: operands[name] for name in ("gate_up", "down")}


REFUSED = {
    "float32": (lambda o: dict(x=o["x"].float()), TypeError, "got x torch.float32"),
    "another K": (lambda o: dict(x=o["x"][:, 1:]), ValueError, r"got x \[5, 47\], expected \[rows, 48\]"),
    "odd rows": (lambda o: dict(gate_up=o["gate_up"][:, 1:]), ValueError, r"expected \[E, 2 \* I, K\]"),
    "one axis": (lambda o: dict(chosen=o["chosen"][:, 0]), ValueError, r"got chosen \[5\], expected \[M, top\]"),
    "float choice": (lambda o: dict(chosen=o["chosen"].float()), TypeError, "got chosen torch.float32"),
    "down of another I": (lambda o: dict(down=o["down"][:, :, 1:]), ValueError, r"got down \[4, 48, 34\], expected"),
    "words of one alone": (lambda o: dict(down=make(kind=W8)["down"]), TypeError, "expected both in words or neither"),
    "words cut short": (
        lambda o: {name: replace(w, codes=w.codes[:, :-1].contiguous()) for name, w in words_of(make(kind=W8)).items()},
        ValueError,
        r"got gate_up.codes \[4, 0, 70, 32\], expected \[4, 1, 70, 32\]",
    ),
    "int8 weights": (lambda o: dict(down=o["down"].to(torch.int8)), TypeError, "got down torch.int8"),
    "transposed": (lambda o: dict(down=o["down"].mT.contiguous().mT), ValueError, "expected contiguous"),
    "not interpreted": (lambda o: dict(impl="triton"), RuntimeError, "got cpu tensors with TRITON_INTERPRET not set"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    operands = make()
    with pytest.raises(error, match=message):
        call_op(grouped_moe_gemm, Operands, **operands | change(operands))
