"""Linears whose weights are multiplied as stored: W8A8, LLM.int8(), bf16, f16 and f32."""

from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

import cpu_kernels
from cpu_kernels.linear_float import BF16_PRODUCT_ISAS, linear_float_ref, round_to_bf16_ref, rounding_bound
from cpu_kernels.linear_int8 import linear_llm_int8_ref, linear_w8a8_ref
from qbench.kernels.case import Deviation, Kernel, Problem, deviation
from quant.formats import dequantize, get_format
from quant.present import present

# M, N, K: panels are 16 rows wide, tiles 12 tokens high and 4 panels wide, rows padded to 32 or 64 features.
SHAPES = ((1, 1, 1), (3, 63, 3), (7, 131, 63), (13, 17, 131), (131, 64, 64))
FLOATS = ("bf16", "f16", "f32")
GIVEN_SCALE = np.float32(0.02)  # 127 of them are 2.5: larger values are clipped
SEED = 15

Oracle = Callable[[], tuple[np.ndarray, np.ndarray | float]]  # y, and how far from it rounding may go


def dense_linears() -> list[Kernel]:
    floats = [Kernel(f"linear_{name}", partial(float_problems, name)) for name in FLOATS]
    return [Kernel("linear_w8a8", w8a8_problems), Kernel("linear_llm_int8", llm_int8_problems), *floats]


def random_problem(num_tokens: int, num_rows: int, row_size: int) -> tuple[np.ndarray, np.ndarray, str]:
    """weight [N, K], x [M, K] with outliers, label"""
    rng = np.random.default_rng((SEED, num_tokens, num_rows, row_size))
    weight = rng.standard_normal((num_rows, row_size)).astype(np.float32)
    x = rng.standard_normal((num_tokens, row_size)).astype(np.float32)
    x[num_tokens // 2, :: 1 + row_size // 3] *= 20
    return weight, x, f"M={num_tokens} N={num_rows} K={row_size}"


def w8a8_problems() -> Iterator[Problem]:
    """Bit for bit: a scale for each token, for all of a call, and one that is given."""
    inputs = [random_problem(*shape) for shape in SHAPES]
    for weight, x, label in inputs:
        yield w8a8_problem("w8a8", weight, x, label, None)
    weight, x, label = inputs[-1]
    per_call = np.abs(x).max(keepdims=True) / np.float32(127)
    yield w8a8_problem("w8a8-atensor", weight, x, label, per_call)
    yield w8a8_problem("w8a8-astatic", weight, x, label, np.full((1, 1), GIVEN_SCALE))
    yield w8a8_problem("w8a8", weight, with_nan(x), f"NaN and infinity {label}", None)


def w8a8_problem(name: str, weight: np.ndarray, x: np.ndarray, label: str, scale: np.ndarray | None) -> Problem:
    """scale: divisor of activations; None: each token's own"""
    parts = get_format("w8a8").quantize(weight).parts
    given = {"input_scale": present(scale).ravel()} if name == "w8a8-astatic" else {}
    packed = cpu_kernels.PackedLinear(name, parts | given, weight.shape)
    return problem(f"{name} {label}", packed, x, partial(exactly, linear_w8a8_ref, x, *parts.values(), scale))


def with_nan(x: np.ndarray) -> np.ndarray:
    """NaN in one token and infinity in another, among some that have neither."""
    x = x[:7].copy()
    x[2, 17], x[5, 0] = np.nan, -np.inf
    return x


def exactly(oracle: Callable[..., np.ndarray], *arrays: np.ndarray | None) -> tuple[np.ndarray, float]:
    return oracle(*arrays), 0.0


def llm_int8_problems() -> Iterator[Problem]:
    """Without outliers that are known beforehand, and with one; then with NaN and infinity."""
    fmt = get_format("llm-int8")
    inputs = [random_problem(*shape) for shape in SHAPES]
    last_weight, last_x, last = inputs[-1]
    for weight, x, label in [*inputs, (last_weight, with_nan(last_x), f"NaN and infinity {last}")]:
        parts = fmt.quantize(weight).parts
        for known in (np.empty(0, np.int32), np.array([weight.shape[1] // 2], np.int32)):
            arrays = (parts["weight"], parts["SCB"], weight[:, known].astype(np.float16), known)
            packed = cpu_kernels.PackedLlmInt8(*arrays)
            yield problem(f"{label} known={len(known)}", packed, x, partial(linear_llm_int8_ref, x, *arrays))


def float_problems(format_name: str) -> Iterator[Problem]:
    for shape in SHAPES:
        weight, x, label = random_problem(*shape)
        floats = Floats(format_name, weight, x)
        yield Problem(label, floats.run, floats.check)


class Floats:
    """A float weight and its oracle, which for f16 is another under the instruction set that rounds the weight."""

    def __init__(self, format_name: str, weight: np.ndarray, x: np.ndarray) -> None:
        qtensor = get_format(format_name).quantize(weight)
        self.packed = cpu_kernels.PackedLinear(format_name, qtensor.parts, qtensor.shape)
        self.weight, self.x = dequantize(qtensor), x
        self.rounds_x = self.rounds_weight = format_name == "bf16"

    def run(self, isa: str) -> tuple[np.ndarray, str]:
        if self.packed.format == "f16":
            self.rounds_x = self.rounds_weight = isa in BF16_PRODUCT_ISAS
        return multiply(self.packed, self.x, isa)

    def check(self, y: np.ndarray) -> Deviation:
        """Deviation of the last run's output; rounding does not change a bf16 weight."""
        seen = round_to_bf16_ref(self.x) if self.rounds_x else self.x
        met = round_to_bf16_ref(self.weight) if self.rounds_weight else self.weight
        return deviation(y, linear_float_ref(seen, met, rounds_x=False), rounding_bound(seen, met))


def multiply(packed, x: np.ndarray, isa: str) -> tuple[np.ndarray, str]:
    out = np.full((len(x), packed.shape[0]), np.nan, np.float32)
    return packed.matmul(x, isa=isa, out=out), packed.last_isa


def problem(label: str, packed, x: np.ndarray, oracle: Oracle) -> Problem:
    oracle = cache(oracle)

    def check(y: np.ndarray) -> Deviation:
        with np.errstate(invalid="ignore"):  # infinity less infinity
            return deviation(y, *oracle())

    return Problem(label, partial(multiply, packed, x), check)
