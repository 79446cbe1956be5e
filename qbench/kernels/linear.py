"""Linears on stored codes: y = x @ weight.T, x rounded to 8 bits in blocks of 32, weights perhaps once more."""

from collections.abc import Iterator, Mapping
from functools import cache, partial

import numpy as np

import cpu_kernels
from cpu_kernels.linear import bf16_bound, linear_bf16_ref, linear_ref, reround_ref, rounding_bound
from qbench.kernels.case import Deviation, Kernel, Problem, deviation
from quant.formats import Format, IntGroupFormat, TrellisFormat, dequantize, get_format
from quant.formats.grid import GridFormat
from quant.qtensor import QTensor

# M, N, K in blocks: panels are 16 rows wide, tiles 12 tokens high, direct products 8, stretches 512 long.
SHAPES = ((1, 1, 1), (3, 63, 3), (5, 17, 17), (13, 16, 2), (131, 131, 2))
# Path -> instruction sets that have no kernel of it: tile instructions multiply bfloat16.
PATHS = {"direct": frozenset({"amx"}), "tile": frozenset({"amx"})}
BF16 = "bf16"
WITHOUT_BF16 = frozenset({"scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16"})
GROUP_SIZES = (32, 128)
SEED = 13
OP_PREFIX = "linear_"
PATH = "int8x256"
# The largest code; those of q2_k times their sub-scale of 4 bits, as they are unpacked.
LARGEST = {"q2_k": 3 * 15, "q3_k": 4, "q4_k": 15, "q5_k": 31, "q6_k": 32}
AFFINE = ("q2_k", "q4_k", "q5_k")


def linears() -> list[Kernel]:
    return [Kernel(OP_PREFIX + name, partial(problems, name)) for name in packed_formats() if has_two_paths(name)]


def has_two_paths(format_name: str) -> bool:
    """Whether activations are rounded in blocks, as for blocks and groups; others are multiplied as stored, or turned
    before.
    """
    fmt = get_format(format_name)
    return isinstance(fmt, IntGroupFormat) or (fmt.block_size > 1 and not isinstance(fmt, TrellisFormat))


def fixed_paths(format_name: str) -> Mapping[str | None, frozenset[str]]:
    """Paths that multiply the same values for any number of tokens, each with the instruction sets that lack it; None
    is the only path of a format.
    """
    if isinstance(get_format(format_name), TrellisFormat):
        return {"direct": PATHS["direct"], PATH: PATHS["tile"], BF16: WITHOUT_BF16}
    return {**PATHS, BF16: WITHOUT_BF16} if has_two_paths(format_name) else {None: frozenset()}


def packed_formats() -> list[str]:
    """The formats that ops of the table are named after; integers in groups of any size run as those per channel."""
    ops = dict.fromkeys(row["op"] for row in cpu_kernels.op_table())
    names = [op.removeprefix(OP_PREFIX) for op in ops if op.startswith(OP_PREFIX)]
    return [name for name in names if cpu_kernels.has_packed_linear(name)]


def problems(format_name: str) -> Iterator[Problem]:
    """Each path on odd shapes; then tokens with NaN and with infinity among others, and the groups of integers."""
    fmt = get_format(format_name)
    block_size = max(32, fmt.block_size)
    inputs = [random_inputs(fmt, num_tokens, num_rows, n * block_size) for num_tokens, num_rows, n in SHAPES]
    for qtensor, x in inputs:
        yield from of_paths(qtensor, x, f"M={len(x)} N={qtensor.shape[0]} K={qtensor.shape[1]}")
    qtensor, x = inputs[-1]
    x = x[:15].copy()
    x[2, 17], x[13, 0] = np.nan, -np.inf
    yield from of_paths(qtensor, x, f"NaN and infinity N={qtensor.shape[0]} K={qtensor.shape[1]}")
    if isinstance(fmt, IntGroupFormat):
        yield from of_groups(fmt)


def of_groups(per_channel: IntGroupFormat) -> Iterator[Problem]:
    """Groups of several sizes, and features in an order of their own, as GPTQ leaves them."""
    yield from of_paths(*random_inputs(per_channel, 5, 17, 33), "M=5 N=17 K=33")  # a last step that is not full
    formats = [IntGroupFormat(per_channel.bits, size, per_channel.symmetric) for size in GROUP_SIZES]
    inputs = [random_inputs(fmt, 13, 35, 5 * fmt.block_size) for fmt in formats]
    for group_size, (qtensor, x) in zip(GROUP_SIZES, inputs, strict=True):
        yield from of_paths(qtensor, x, f"M=13 N=35 K={5 * group_size}, groups of {group_size}")
    group_size, (qtensor, x) = GROUP_SIZES[-1], inputs[-1]
    g_idx = np.random.default_rng(SEED).permutation(np.arange(x.shape[1]) // group_size).astype(np.int32)
    ordered = QTensor(qtensor.format, qtensor.shape, qtensor.parts, {"g_idx": g_idx})
    yield from of_paths(ordered, x, f"M=13 N=35 K={5 * group_size}, groups of {group_size} in act-order")


def random_inputs(fmt: Format, num_tokens: int, num_rows: int, row_size: int) -> tuple[QTensor, np.ndarray]:
    rng = np.random.default_rng((SEED, num_tokens, num_rows, row_size))
    qtensor = fmt.quantize(rng.standard_normal((num_rows, row_size)).astype(np.float32))
    return qtensor, rng.standard_normal((num_tokens, row_size)).astype(np.float32)


def of_paths(qtensor: QTensor, x: np.ndarray, label: str) -> Iterator[Problem]:
    packed = cpu_kernels.PackedLinear(qtensor.format, qtensor.parts | qtensor.shared, qtensor.shape)

    @cache
    def oracle() -> tuple[np.ndarray, np.ndarray]:
        """In the order in which features are rounded, which act-order gives."""
        weight, minimum = dequantize(qtensor), minima(qtensor)
        order = np.argsort(qtensor.shared.get("g_idx", np.zeros(x.shape[1])), kind="stable")
        bound = rounding_bound(x[:, order], weight[:, order], None if minimum is None else minimum[:, order])
        return linear_ref(x, weight, order), bound

    def check(y: np.ndarray) -> Deviation:
        return deviation(y, *oracle())

    for path, not_for in PATHS.items():
        yield Problem(f"{path} {label}", partial(multiply, packed, x, path), check, not_for)

    def check_bf16(y: np.ndarray) -> Deviation:
        weight = dequantize(qtensor)
        return deviation(y, linear_bf16_ref(x, weight), bf16_bound(x, weight, minima(qtensor)))

    yield Problem(f"{BF16} {label}", partial(multiply, packed, x, BF16), check_bf16, WITHOUT_BF16)
    if qtensor.format in LARGEST:

        def check_rerounded(y: np.ndarray) -> Deviation:
            weight = rerounded_weight(qtensor)
            return deviation(y, linear_ref(x, weight), rounding_bound(x, weight))

        yield Problem(f"{PATH} {label}", partial(multiply, packed, x, PATH), check_rerounded, PATHS["tile"])


def multiply(packed: cpu_kernels.PackedLinear, x: np.ndarray, path: str | None, isa: str) -> tuple[np.ndarray, str]:
    out = np.full((len(x), packed.shape[0]), np.nan, np.float32)
    return packed.matmul(x, isa=isa, path=path, out=out), packed.last_isa


def minima(qtensor: QTensor) -> np.ndarray | None:
    """The value of code 0, [N, K], for formats whose kernels multiply it with sums of activations; else None."""
    fmt = get_format(qtensor.format)
    if isinstance(fmt, GridFormat):
        offset = fmt.read_grid(qtensor.parts["blocks"].reshape(-1, fmt.block_bytes)).offset
        return offset.reshape(qtensor.shape) if offset.any() else None
    if not isinstance(fmt, IntGroupFormat) or fmt.symmetric or fmt.bits < 8:  # fewer bits: taken off the codes
        return None
    _, scale, zero_point, g_idx = fmt.unpack(qtensor)
    row_size = qtensor.shape[1]
    group_of = np.arange(row_size) * scale.shape[1] // row_size if g_idx is None else g_idx
    return (-scale.astype(np.float64) * zero_point)[:, group_of]


def rerounded(format_name: str, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The codes and scales that the path multiplies.

    blocks   [N, B * block_bytes] uint8
    returns  codes [N, K] int64 in [-127, 127]; scale [N, K / 256] float32
    """
    fmt = get_format(format_name)
    assert isinstance(fmt, GridFormat)
    data = blocks.reshape(-1, fmt.block_bytes)
    grid, codes = fmt.read_grid(data), fmt.read_codes(data)
    scale = grid.scale
    if format_name == "q2_k":
        codes = codes * np.repeat(data[:, :16] & 15, 16, axis=1)
        scale = np.repeat(data[:, 80:82].copy().view("<f2").astype(np.float32), 256, axis=1)
    codes, scale, minimum = (part.reshape(len(blocks), -1) for part in (codes, scale, grid.offset))
    return reround_ref(codes, scale, minimum if format_name in AFFINE else None, LARGEST[format_name])


def rerounded_weight(qtensor: QTensor) -> np.ndarray:
    """[N, K] float64"""
    codes, scale = rerounded(qtensor.format, np.ascontiguousarray(qtensor.parts["blocks"]))
    return codes * np.repeat(scale, 256, axis=1).astype(np.float64)
