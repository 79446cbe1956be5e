"""GPTQ's costly steps on a linear of a 1B Llama, next to torch's: the Hessian, its factor, the feedback of errors."""

from collections.abc import Callable
from functools import partial

import numpy as np

import cpu_kernels
from cpu_kernels.gptq import GptqFeedback, coefficients_ref, gptq_factorize
from cpu_kernels.gram import add_gram
from qbench.kernels.benchmark import OURS, Benchmark, Contender
from qbench.kernels.case import Deviation, deviation
from qbench.kernels.gptq_inputs import LOWEST, QMAX, STEP, Inputs, inputs
from qbench.speed.units import BF16, FP32

SIZE = 2048  # N and K
TOKENS = 4096  # that the Hessian is of
BLOCK = 256  # columns of a super-block of Q4_K, whose grids are rounded to
CHECKED = 64  # rows that float64 is asked about
UNIT = 2.0**-24  # of float32


class Gram:
    """gram += x^T x, x rounded to bfloat16, on and above the diagonal; ours"""

    def __init__(self, given: Inputs) -> None:
        self.x, self.gram, self.how = given.x, np.zeros_like(given.hessian), ""

    def run(self) -> None:
        self.gram[...] = 0
        self.how = add_gram(self.x, self.gram)

    def output(self) -> np.ndarray:
        return np.triu(self.gram)


class Factor:
    """R of the Hessian = R R^T; ours"""

    def __init__(self, given: Inputs) -> None:
        self.hessian, self.how = given.hessian, cpu_kernels.chosen_isa("gptq")

    def run(self) -> None:
        self.factor = factor_of(self.hessian)

    def output(self) -> np.ndarray:
        """[K], the diagonal"""
        return self.factor.diagonal


class Feedback:
    """All columns rounded to Q4_K's grids, a super-block at a time; ours"""

    def __init__(self, given: Inputs) -> None:
        self.given, self.factor, self.how = given, factor_of(given.hessian), ""

    def run(self) -> None:
        given, size = self.given, self.given.weight.shape[1]
        feedback = GptqFeedback(self.factor, given.weight, np.arange(size))
        self.codes = [feedback.round(end, given.scale, given.offset, 0, QMAX) for end in range(BLOCK, size + 1, BLOCK)]
        self.how = feedback.last_isa

    def output(self) -> np.ndarray:
        """[N, K] int8"""
        return np.concatenate(self.codes, axis=1)


def factor_of(hessian: np.ndarray):
    return gptq_factorize(hessian, hessian.diagonal().copy(), np.arange(len(hessian)))


def torch_contender(kind: str, given: Inputs) -> Contender:
    from qbench.kernels.peers import torch_gptq

    return getattr(torch_gptq, kind)(given)


def gram_benchmark(given: Inputs) -> Benchmark:
    num_tokens, size = given.x.shape
    return Benchmark(
        op="gram",
        shape=f"{size}x{size}",
        tokens=num_tokens,
        contenders={
            OURS: partial(Gram, given),
            "torch-float32": partial(torch_contender, "Gram", given),
            "torch-bfloat16": partial(torch_contender, "RoundedGram", given),
        },
        calls=1,
        moved_bytes=given.x.nbytes + given.hessian.nbytes // 2,
        operations=num_tokens * size * (size + 1),
        arithmetic=BF16,
        check=partial(check_gram, given),
    )


def factor_benchmark(given: Inputs) -> Benchmark:
    """torch's chain is the paper's: a factor, an inverse and the factor of that, for four times the operations."""
    size = len(given.hessian)
    moved = given.hessian.nbytes + given.hessian.nbytes // 2
    contenders = {OURS: partial(Factor, given), "torch-chain": partial(torch_contender, "Chain", given)}
    return fp32_benchmark("gptq_factor", given.hessian.shape, contenders, moved, size**3 // 3, check_factor, given)


def feedback_benchmark(given: Inputs) -> Benchmark:
    """A column's errors reach all later ones, K / 2 of them as a rule, and those of its super-block once more."""
    num_rows, size = given.weight.shape
    moved = given.weight.nbytes + given.hessian.nbytes // 2 + given.weight.size
    operations = num_rows * size * (size + BLOCK)
    contenders = {OURS: partial(Feedback, given), "torch-blocks": partial(torch_contender, "Blocks", given)}
    return fp32_benchmark("gptq_feedback", given.weight.shape, contenders, moved, operations, check_feedback, given)


def fp32_benchmark(
    op: str,
    shape: tuple[int, ...],
    contenders: dict[str, Callable[[], Contender]],
    moved_bytes: int,
    operations: int,
    check: Callable[..., Deviation],
    given: Inputs,
) -> Benchmark:
    """One call in float32 on a whole matrix."""
    return Benchmark(
        op=op,
        shape="x".join(map(str, shape)),
        tokens=None,
        contenders=contenders,
        calls=1,
        moved_bytes=moved_bytes,
        operations=operations,
        arithmetic=FP32,
        check=partial(check, given),
    )


STEPS: dict[str, Callable[[Inputs], Benchmark]] = {
    "gram": gram_benchmark,
    "gptq_factor": factor_benchmark,
    "gptq_feedback": feedback_benchmark,
}


def gptq_benchmark(op: str) -> Benchmark:
    """That of one of STEPS."""
    return STEPS[op](inputs(SIZE, TOKENS))


def check_gram(given: Inputs, gram: np.ndarray) -> Deviation:
    """The first rows above the diagonal. Both factors may be rounded to bfloat16, by 2**-9 each; the sum of M terms is
    in float32, and may be rounded to bfloat16 itself.
    """
    x = given.x.astype(np.float64)
    some = x[:, :CHECKED]
    expected, magnitudes = np.triu(some.T @ x), np.triu(np.abs(some).T @ np.abs(x))
    bound = (2.0**-8 + len(x) * UNIT) * magnitudes + 2.0**-9 * np.abs(expected)
    return deviation(gram[:CHECKED], expected, bound)


def check_factor(given: Inputs, diagonal: np.ndarray) -> Deviation:
    """A factor of K columns is that of a matrix off by K roundings, which its condition makes larger: Higham, Accuracy
    and Stability of Numerical Algorithms, theorems 10.3 and 10.8.
    """
    hessian = given.hessian.astype(np.float64)
    expected = np.linalg.cholesky(hessian[::-1, ::-1]).diagonal()[::-1]
    least, *_, largest = np.linalg.eigvalsh(hessian)
    return deviation(diagonal, expected, len(hessian) * UNIT * largest / least * expected)


def check_feedback(given: Inputs, codes: np.ndarray) -> Deviation:
    """How much further than half of one step each code is from float64's value there, after the codes before it.

    K products of errors and coefficients are summed in float32; the grid's end clips values beyond it.
    """
    coefficients = coefficients_ref(given.hessian)
    feedback = np.triu(coefficients, 1)
    weight = given.weight[:CHECKED].astype(np.float64)
    values = STEP * codes[:CHECKED].astype(np.float64) + LOWEST
    errors = values - weight
    targets = np.clip(weight - errors @ feedback, LOWEST, LOWEST + STEP * QMAX)
    beyond = np.maximum(np.abs(values - targets) - STEP / 2, 0.0)
    bound = len(feedback) * UNIT * (np.abs(weight) + np.abs(errors) @ np.abs(feedback))
    return deviation(beyond, np.zeros_like(beyond), bound)
