import itertools
from dataclasses import replace

import pytest
import torch
from support.close import assert_close
from support.gpu_ops import call_op

from gpu_kernels.gemm.checks import FLOATS
from gpu_kernels.gemm.split_k import make_workspace
from gpu_kernels.gemm.w8a8_gemm import MAX_K, Operands, w8a8_gemm, w8a8_gemm_ref
from gpu_kernels.gemm.w8a8_gemm_configs import CONFIGS
from gpu_kernels.gemm.w8a8_gemm_triton import w8a8_gemm_triton
from qbench.kernels.benchmark import Absent
from qbench.kernels.peers.torch import refuse_saturating_int_mm

ODD = (1, 3, 63, 131)
ROWS_90 = [config for _, row in CONFIGS[90] for config in row]
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))


def make(M, N, K, device="cpu", seed=0):
    """x_q, x_scale, weight_q, weight_scale: codes over the whole of int8, scales in [0.5, 1.5) / 128**2."""
    generator = torch.Generator().manual_seed(seed)

    def codes(rows):
        return torch.randint(-128, 128, (rows, K), generator=generator, dtype=torch.int8).to(device)

    def scale(rows):
        return ((torch.rand(rows, generator=generator) + 0.5) / 128).to(device)

    return codes(M), scale(M), codes(N), scale(N)


def ones(M, N, device):
    """Scales of one: y is then the accumulator itself."""
    return torch.ones(M, device=device), torch.ones(N, device=device)


def poisoned(M, N, dtype, device):
    return torch.full((M, N), torch.nan, dtype=dtype, device=device)


def relative_error(dtype, run):
    """Rounding to the result's type, after three roundings in float32 (accumulator and two scales).

    The interpreter cuts bfloat16 off where a GPU rounds it: a whole step of error for half a one.
    """
    cut_off = dtype == torch.bfloat16 and run.interpreted
    return torch.finfo(dtype).eps / (1 if cut_off else 2) + 3 * 2**-24


# -- the oracle


def test_ref_equals_textbook_loop():
    x_q, x_scale, weight_q, weight_scale = make(3, 5, 7)
    bias = torch.linspace(-1, 1, 5)
    y = w8a8_gemm_ref(x_q, x_scale, weight_q, weight_scale, bias)
    for m, n in itertools.product(range(3), range(5)):
        acc = sum(int(x_q[m, k]) * int(weight_q[n, k]) for k in range(7))
        expected = acc * x_scale[m].item() * weight_scale[n].item() + bias[n].item()
        assert_close(y[m, n], expected, rtol=4 * 2**-53, atol=4 * 2**-53)


def test_ref_accumulates_as_torch_int_mm():
    try:
        refuse_saturating_int_mm()
    except Absent as absent:
        pytest.skip(f"torch._int_mm is {absent}")
    x_q, _, weight_q, _ = make(32, 24, 136)
    y = w8a8_gemm_ref(x_q, torch.ones(32), weight_q, torch.ones(24))
    assert torch.equal(y, torch._int_mm(x_q, weight_q.T).double())


@dtypes
def test_cpu_default_is_the_reference(dtype):
    operands = make(3, 5, 7)
    assert torch.equal(w8a8_gemm(Operands(*operands, out_dtype=dtype)), w8a8_gemm_ref(*operands).to(dtype))


# -- the kernel


@pytest.mark.parametrize("K", ODD)
@pytest.mark.parametrize("N", ODD)
@pytest.mark.parametrize("M", ODD)
def test_odd_shapes_exact(run, M, N, K):
    """Scales of one, and |acc| <= 131 * 128**2 < 2**24, so float32 shows the accumulator whole."""
    x_q, _, weight_q, _ = make(M, N, K, run.device)
    x_scale, weight_scale = ones(M, N, run.device)
    y = poisoned(M, N, torch.float32, run.device)
    run(w8a8_gemm_triton, Operands(x_q, x_scale, weight_q, weight_scale), y)
    assert torch.equal(y.double(), w8a8_gemm_ref(x_q, x_scale, weight_q, weight_scale))


@pytest.mark.parametrize("config", ROWS_90, ids=str)
def test_every_tile_shape(run, config):
    """More than one tile each way, more tile rows than a group, an even and an odd K."""
    M, N = 2 * config.block_m + 1, 2 * config.block_n + 3
    for K in (2 * config.block_k, config.block_k + 5):
        x_q, _, weight_q, _ = make(M, N, K, run.device)
        x_scale, weight_scale = ones(M, N, run.device)
        y = poisoned(M, N, torch.float32, run.device)
        run(w8a8_gemm_triton, Operands(x_q, x_scale, weight_q, weight_scale), y, config)
        assert torch.equal(y.double(), w8a8_gemm_ref(x_q, x_scale, weight_q, weight_scale))


def test_few_tokens_are_split_and_the_sum_is_the_same(run):
    """2048 features over 8 programs per tile; the workspace is poison except its counters, which end as they began."""
    x_q, x_scale, weight_q, weight_scale = make(5, 67, 2048, run.device)
    workspace = make_workspace(run.device)
    workspace.partial.fill_(torch.nan)
    y, whole = (poisoned(5, 67, torch.float32, run.device) for _ in range(2))
    operands = Operands(x_q, x_scale, weight_q, weight_scale, workspace=workspace)
    config = ROWS_90[0]
    for _ in range(2):
        run(w8a8_gemm_triton, operands, y)
        assert (
            not workspace.arrived.any() and not workspace.partial[: 8 * config.block_m * config.block_n].isnan().all()
        )
    run(w8a8_gemm_triton, operands, whole, replace(config, programs_per_sm=0))
    assert torch.equal(y, whole)
    assert_close(y, w8a8_gemm_ref(x_q, x_scale, weight_q, weight_scale), rtol=relative_error(torch.float32, run))


def test_groups_of_tile_rows_cover_y(run):
    """11 tile rows in groups of 8: the second group is short."""
    config = next(config for config in ROWS_90 if (config.block_m, config.block_n) == (64, 32))
    x_q, _, weight_q, _ = make(11 * 64, 3 * 32, 16, run.device)
    x_scale, weight_scale = ones(11 * 64, 3 * 32, run.device)
    y = poisoned(11 * 64, 3 * 32, torch.float32, run.device)
    run(w8a8_gemm_triton, Operands(x_q, x_scale, weight_q, weight_scale), y, config)
    assert torch.equal(y.double(), w8a8_gemm_ref(x_q, x_scale, weight_q, weight_scale))


@dtypes
def test_scaled_products_match_the_reference(run, dtype):
    operands = make(63, 131, 131, run.device)
    y = poisoned(63, 131, dtype, run.device)
    run(w8a8_gemm_triton, Operands(*operands), y)
    assert_close(y, w8a8_gemm_ref(*operands), rtol=relative_error(dtype, run))


@pytest.mark.parametrize("bias_dtype", FLOATS, ids=lambda dtype: "bias_" + str(dtype).removeprefix("torch."))
@dtypes
def test_a_bias_that_cancels_the_product_is_within_its_error(run, dtype, bias_dtype):
    """The bias may cancel the product, so the float32 error is bounded by the product's own size."""
    operands = make(3, 131, 63, run.device)
    bias = torch.linspace(-3, 3, 131, device=run.device).to(bias_dtype)
    y = poisoned(3, 131, dtype, run.device)
    run(w8a8_gemm_triton, Operands(*operands, bias=bias), y)
    product = w8a8_gemm_ref(*operands).abs().max().item()
    expected = w8a8_gemm_ref(*operands, bias)
    assert_close(y, expected, rtol=relative_error(dtype, run), atol=4 * 2**-24 * (product + 3))


@pytest.mark.parametrize("x_code, weight_code, K", [(-128, -128, 8191), (-128, 127, 8191), (127, 127, 131)])
def test_extreme_codes_exact(run, x_code, weight_code, K):
    """|acc| up to 2**27, and multiples of 128 if it passes the 2**24 up to which float32 holds every integer."""
    x_q = torch.full((3, K), x_code, dtype=torch.int8, device=run.device)
    weight_q = torch.full((5, K), weight_code, dtype=torch.int8, device=run.device)
    x_scale, weight_scale = ones(3, 5, run.device)
    y = poisoned(3, 5, torch.float32, run.device)
    run(w8a8_gemm_triton, Operands(x_q, x_scale, weight_q, weight_scale), y)
    assert (y.double() == K * x_code * weight_code).all()


def test_strided_operands_and_untouched_surroundings(run):
    """Every operand is a view into a buffer full of poison; memory around y keeps its sentinel."""
    M, N, K = 63, 65, 131
    x_q, x_scale, weight_q, weight_scale = make(M, N, K, run.device)

    def surrounded(tensor, poison):
        """The same values at every second element of a larger buffer, transposed if there are two axes."""
        shape = [2 * size + 6 for size in reversed(tensor.shape)]
        buffer = torch.full(shape, poison, dtype=tensor.dtype, device=tensor.device)
        window = buffer[tuple(slice(3, 3 + 2 * size, 2) for size in reversed(tensor.shape))]
        view = window.T if tensor.dim() == 2 else window
        view.copy_(tensor)
        return buffer, view

    _, x_view = surrounded(x_q, 127)
    _, weight_view = surrounded(weight_q, -128)
    _, x_scale_view = surrounded(x_scale, torch.nan)
    _, weight_scale_view = surrounded(weight_scale, torch.nan)
    _, bias_view = surrounded(torch.linspace(-1, 1, N, device=run.device), torch.nan)
    y_buffer, y_view = surrounded(poisoned(M, N, torch.float32, run.device), 12345.0)
    run(w8a8_gemm_triton, Operands(x_view, x_scale_view, weight_view, weight_scale_view, bias=bias_view), y_view)

    expected = w8a8_gemm_ref(x_q, x_scale, weight_q, weight_scale, bias_view)
    bound = 4 * 2**-24 * (expected.abs().max().item() + 2)
    assert_close(y_view, expected, rtol=relative_error(torch.float32, run), atol=bound)
    y_view.fill_(12345.0)
    assert (y_buffer == 12345.0).all()


def test_nan_scale_stays_in_its_row_and_column(run):
    operands = make(5, 7, 63, run.device)
    operands[1][2] = torch.nan
    operands[3][4] = torch.inf
    y = poisoned(5, 7, torch.float32, run.device)
    run(w8a8_gemm_triton, Operands(*operands), y)
    assert_close(y, w8a8_gemm_ref(*operands), rtol=relative_error(torch.float32, run))


def test_no_input_features_leave_the_bias(run):
    x_q, x_scale, weight_q, weight_scale = make(3, 5, 0, run.device)
    bias = torch.linspace(-1, 1, 5, device=run.device)
    y = poisoned(3, 5, torch.float32, run.device)
    run(w8a8_gemm_triton, Operands(x_q, x_scale, weight_q, weight_scale, bias=bias), y)
    assert torch.equal(y, bias.expand(3, 5))


def test_public_function_runs_triton_by_name(run):
    operands = make(3, 5, 63, run.device)
    y = run(call_op, w8a8_gemm, Operands, *operands, out_dtype=torch.float16, impl="triton")
    assert_close(y, w8a8_gemm_ref(*operands), rtol=relative_error(torch.float16, run))


@pytest.mark.parametrize("per_tensor", ["x_scale", "weight_scale", "both"])
def test_per_tensor(run, per_tensor):
    """One scale for a tensor is that scale in every place: a power of two, so the codes' sums show exactly."""
    x_q, _, weight_q, _ = make(5, 35, 64, run.device)
    x_scale, weight_scale = (2.0 ** -(torch.arange(size, device=run.device) % 3 + 1) for size in (5, 35))
    x_scale = x_scale if per_tensor == "weight_scale" else x_scale[1:2]
    weight_scale = weight_scale if per_tensor == "x_scale" else weight_scale[1:2]
    expected = w8a8_gemm_ref(x_q, x_scale.expand(5), weight_q, weight_scale.expand(35))
    for impl in ("triton", "reference"):
        y = run(call_op, w8a8_gemm, Operands, x_q, x_scale, weight_q, weight_scale, out_dtype=torch.float32, impl=impl)
        assert torch.equal(y.double(), expected)


# -- refusals of the public function


def test_empty_products_have_empty_results():
    for M, N in ((0, 5), (3, 0)):
        assert w8a8_gemm(Operands(*make(M, N, 7))).shape == (M, N)
    assert (w8a8_gemm(Operands(*make(3, 5, 0))) == 0).all()


REFUSED = {
    "x_q not int8": (dict(x_q=torch.zeros(3, 7)), TypeError, "got x_q torch.float32, expected torch.int8"),
    "weight_q uint8": (dict(weight_q=torch.zeros(5, 7, dtype=torch.uint8)), TypeError, "weight_q torch.uint8"),
    "scale float64": (dict(x_scale=torch.ones(3).double()), TypeError, "x_scale torch.float64"),
    "integer bias": (dict(bias=torch.zeros(5, dtype=torch.int32)), TypeError, "bias torch.int32"),
    "other K": (dict(weight_q=torch.zeros(5, 8, dtype=torch.int8)), ValueError, r"expected \[M, K\] and \[N, K\]"),
    "three axes": (dict(x_q=torch.zeros(1, 3, 7, dtype=torch.int8)), ValueError, r"expected \[M, K\] and \[N, K\]"),
    "scale of another M": (dict(x_scale=torch.ones(4)), ValueError, r"got x_scale \[4\], expected \[3\]"),
    "scale [N, 1]": (dict(weight_scale=torch.ones(5, 1)), ValueError, r"got weight_scale \[5, 1\], expected \[5\]"),
    "bias of another N": (dict(bias=torch.ones(3)), ValueError, r"got bias \[3\], expected \[5\]"),
    "two devices": (dict(weight_scale=torch.ones(5, device="meta")), ValueError, "on meta and x_q on cpu"),
    "out_dtype": (dict(out_dtype=torch.float64), NotImplementedError, "got out_dtype torch.float64, expected one of"),
    "unknown impl": (dict(impl="cuda"), NotImplementedError, r"got impl 'cuda', expected one of \['reference', "),
    "K past int32": (
        dict(
            x_q=torch.zeros(1, dtype=torch.int8).expand(3, MAX_K + 1),
            weight_q=torch.zeros(1, dtype=torch.int8).expand(5, MAX_K + 1),
        ),
        NotImplementedError,
        "expected at most 131071",
    ),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    names = ("x_q", "x_scale", "weight_q", "weight_scale")
    with pytest.raises(error, match=message):
        call_op(w8a8_gemm, Operands, **dict(zip(names, make(3, 5, 7), strict=True)) | change)


def test_device_without_an_implementation():
    operands = [tensor.to("meta") for tensor in make(3, 5, 7)]
    with pytest.raises(NotImplementedError, match=r"w8a8_gemm on 'meta'.*\['cpu', 'cuda'\]"):
        w8a8_gemm(Operands(*operands))


def test_cpu_tensors_outside_the_interpreter():
    with pytest.raises(RuntimeError, match="got cpu tensors with TRITON_INTERPRET not set"):
        w8a8_gemm(Operands(*make(3, 5, 7)), impl="triton")
