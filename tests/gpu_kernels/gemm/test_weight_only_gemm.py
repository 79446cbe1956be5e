"""Exact: activations are multiples of 1/8 below 4, scales 1/4 to 2, and q - zero_point whole and below 16 or 256. So
every sum that float32 can meet, in whatever order, is a multiple of 2**-5, and with at most 3072 features of 4 bits or
384 of 8 below 2**19: exact. y is then rounded once."""

import itertools

import pytest
import torch
from support.close import assert_close
from support.gpu_ops import call_op

from gpu_kernels.gemm.split_k import Workspace, make_workspace
from gpu_kernels.gemm.weight_only_gemm import Operands, w4a16_gemm, w8a16_gemm, weight_only_gemm_ref
from gpu_kernels.gemm.weight_only_gemm_triton import weight_only_gemm_triton
from gpu_kernels.gemm.words_layout import WordsWeight, pack_words

SHAPES = [(1, 1, 32), (3, 131, 160), (16, 63, 384), (17, 3, 131), (63, 65, 32), (131, 131, 288)]


def make(M, N, K, group_size=32, symmetric=False, act_order=False, device="cpu", bits=4):
    generator = torch.Generator().manual_seed(M + N + K)
    groups = 1 if group_size is None else K // group_size
    end = 2 ** (bits - 1)
    q = torch.randint(-end, end, (N, K), generator=generator, dtype=torch.int8)
    scale = 2.0 ** torch.randint(-2, 2, (N, groups), generator=generator)
    zero_point = None if symmetric else torch.randint(-end, end, (N, groups), generator=generator, dtype=torch.int8)
    g_idx = torch.randperm(K, generator=generator) // group_size if act_order else None
    weight = pack_words(q, scale.half(), zero_point, g_idx, bits=bits)
    x = torch.randint(-31, 32, (M, K), generator=generator).half() / 8
    return x.to(device), moved(weight, device)


def moved(weight, device):
    there = [None if part is None else part.to(device) for part in (weight.codes, weight.scale)]
    rest = [None if part is None else part.to(device) for part in (weight.zero_point, weight.order)]
    return WordsWeight(*there, *rest, weight.num_features, weight.group_size, weight.bits)


def check_exact(run, x, weight, bias=None, workspace=None):
    y = torch.full((x.shape[0], weight.num_rows), torch.nan, dtype=torch.float16, device=run.device)
    run(weight_only_gemm_triton, Operands(x, weight, bias, workspace), y)
    assert torch.equal(y, weight_only_gemm_ref(x, weight, bias).half())


# -- the oracle


def test_ref_equals_textbook_loop():
    x, weight = make(3, 5, 64, act_order=True)
    q, scale, zero_point = torch.zeros(5, 64), weight.scale.double(), weight.zero_point.double()
    for n, place in itertools.product(range(5), range(64)):
        word = int(weight.codes[0, n, place % 32])
        q[n, weight.order[place]] = (word >> 4 * (place // 32) & 15) - 8 - zero_point[place // 32, n]
        q[n, weight.order[place]] *= scale[place // 32, n]
    expected = [[sum(a * b for a, b in zip(row, line, strict=True)) for line in q.tolist()] for row in x.tolist()]
    assert_close(weight_only_gemm_ref(x, weight), expected, rtol=64 * 2**-53)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_cpu_default_is_the_reference(dtype):
    x, weight = make(3, 5, 64)
    assert torch.equal(w4a16_gemm(Operands(x.to(dtype), weight)), weight_only_gemm_ref(x.to(dtype), weight).to(dtype))


# -- the kernel


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("M, N, K", SHAPES)
def test_odd_shapes(run, M, N, K, bits):
    check_exact(run, *make(M, N, K, 32 if K % 32 == 0 else None, device=run.device, bits=bits))


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("group_size", [32, 64, 128, None])
@pytest.mark.parametrize("M, bits", [(5, 4), (67, 4), (5, 8)])
def test_every_group_size_is_exact(run, M, group_size, symmetric, bits):
    check_exact(run, *make(M, 35, 384, group_size, symmetric, device=run.device, bits=bits))


@pytest.mark.parametrize("M", [3, 67], ids=["gathered", "put in order"])
def test_act_order(run, M):
    check_exact(run, *make(M, 35, 256, 64, act_order=True, device=run.device))


def test_split_sums_are_added_in_one_order(run):
    """3072 features over 24 programs per tile; the workspace is poison except its counters, which end as they began."""
    x, weight = make(16, 35, 3072, 128, device=run.device)
    workspace = make_workspace(run.device)
    workspace.partial.fill_(torch.nan)
    check_exact(run, x, weight, workspace=workspace)
    assert not workspace.arrived.any() and not workspace.partial[: 24 * 16 * 35].isnan().all()
    check_exact(run, x, weight, workspace=workspace)


def test_a_token_does_not_depend_on_its_batch(run):
    """Up to 16 tokens take one path."""
    generator = torch.Generator().manual_seed(0)
    x, weight = make(16, 35, 1024, 128, device=run.device)
    x = torch.randn(16, 1024, generator=generator).half().to(run.device)
    rows = [torch.empty(m, 35, dtype=torch.float16, device=run.device) for m in (16, 3)]
    for y in rows:
        run(weight_only_gemm_triton, Operands(x[: len(y)], weight), y)
    assert torch.equal(rows[0][:3], rows[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_bias_is_added_exactly(run, dtype):
    """Quarters below 8: exact in every type, and in the sum with the product."""
    x, weight = make(5, 35, 256, device=run.device)
    check_exact(run, x, weight, bias=(torch.arange(35, device=run.device) / 4 - 4).to(dtype))


def test_strided_activations_amid_nan(run):
    x, weight = make(5, 35, 160, device=run.device)
    around = torch.full((2 * 160 + 6, 11), torch.nan, dtype=torch.float16, device=run.device)
    view = around[3:-3:2, 1::2].T
    view.copy_(x)
    check_exact(run, view, weight)


@pytest.mark.parametrize("special", [torch.nan, torch.inf])
def test_nan_and_inf_stay_in_their_token(run, special):
    x, weight = make(5, 35, 256, symmetric=False, device=run.device)
    x[2, 70] = special
    y = torch.zeros(5, 35, dtype=torch.float16, device=run.device)
    run(weight_only_gemm_triton, Operands(x, weight), y)
    assert not y[2].isfinite().any() and y[[0, 1, 3, 4]].isfinite().all()


def test_public_function_runs_triton_by_name(run):
    x, weight = make(3, 35, 128, device=run.device)
    assert torch.equal(run(w4a16_gemm, Operands(x, weight), impl="triton"), weight_only_gemm_ref(x, weight).half())
    x, weight = make(3, 35, 128, device=run.device, bits=8)
    assert torch.equal(run(w8a16_gemm, Operands(x, weight), impl="triton"), weight_only_gemm_ref(x, weight).half())


# -- refusals of the public function


def test_empty_products_have_empty_results():
    x, weight = make(3, 5, 32)
    assert w4a16_gemm(Operands(x[:0], weight)).shape == (0, 5)


def test_strided_bias(run):
    x, weight = make(3, 35, 64, device=run.device)
    bias = (torch.arange(70, device=run.device) / 4)[::2]
    assert torch.equal(
        run(w4a16_gemm, Operands(x, weight, bias), impl="triton"), weight_only_gemm_ref(x, weight, bias).half()
    )


X, WEIGHT = make(3, 5, 64)
TINY = Workspace(torch.zeros(1), torch.zeros(1, dtype=torch.int32))
REFUSED = {
    "float32": (dict(x=X.float()), TypeError, "got x torch.float32, expected torch.float16 or torch.bfloat16"),
    "another K": (dict(x=X[:, :63]), ValueError, r"got x \[3, 63\], expected \[rows, 64\]"),
    "one axis": (dict(x=X[0]), ValueError, r"got x \[64\], expected \[rows, 64\]"),
    "bias of another N": (dict(bias=torch.zeros(3)), ValueError, r"got bias \[3\], expected \[5\]"),
    "two devices": (dict(bias=torch.zeros(5, device="meta")), ValueError, "on meta and x on cpu"),
    "other bits": (dict(weight=make(3, 5, 64, bits=8)[1]), ValueError, "got a weight of 8 bits, expected 4"),
    "unknown impl": (dict(impl="cuda"), NotImplementedError, r"got impl 'cuda', expected one of \['reference', "),
    "not interpreted": (dict(impl="triton"), RuntimeError, "got cpu tensors with TRITON_INTERPRET not set"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        call_op(w4a16_gemm, Operands, **dict(x=X, weight=WEIGHT) | change)


def test_small_workspace(run):
    x, weight = make(3, 35, 256, device=run.device)
    tiny = Workspace(TINY.partial.to(run.device), TINY.arrived.to(run.device))
    y = torch.empty(3, 35, dtype=torch.float16, device=run.device)
    with pytest.raises(ValueError, match=r"got a workspace of 1 sums and 1 tiles, expected .* make_workspace"):
        run(weight_only_gemm_triton, Operands(x, weight, workspace=tiny), y)
