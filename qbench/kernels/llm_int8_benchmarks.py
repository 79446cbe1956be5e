"""LLM.int8() at the shapes of real models, next to the same by torch."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch

from qbench.kernels.benchmark import OURS, Benchmark, Contender
from qbench.kernels.linear_benchmarks import ANY_SHAPE, Weight, asked_shapes
from qbench.kernels.peers.torch_llm_int8 import TorchLlmInt8Linears
from qbench.runtime.layers.packed_linears import PackedLlmInt8Linear, packed_llm_int8_bytes
from qbench.speed.operands import operands_of_linear
from quant.qtensor import QTensor

OP = "linear_llm_int8"
OUTLIER_FEATURES = 6  # arXiv:2208.07339, section 4.1: as many at 6.7B parameters
OUTLIER = 20.0


class OutlierWeight(Weight):
    """A weight whose inputs have outliers in a few features, in all tokens."""

    def __init__(self, num_rows: int, row_size: int, most_tokens: int) -> None:
        super().__init__("llm-int8", num_rows, row_size, most_tokens)
        self.x[:, :: -(-row_size // OUTLIER_FEATURES)] = OUTLIER


class LlmInt8Linears:
    """Every call with its own copy of the weight, as the runtime multiplies it."""

    def __init__(self, qtensor: QTensor, x: np.ndarray, copies: int) -> None:
        self.linears = [PackedLlmInt8Linear(qtensor) for _ in range(copies)]
        self.how = self.linears[0].name.split("[")[1].removesuffix("]")
        self.x = torch.from_numpy(x)
        self.y = torch.empty(0)

    def run(self) -> None:
        for linear in self.linears:
            self.y = linear(self.x)

    def output(self) -> np.ndarray:
        return self.y.numpy()


def llm_int8_benchmarks(tokens: tuple[int, ...], shapes: Sequence[str] = ANY_SHAPE) -> Iterator[Benchmark]:
    for num_rows, row_size, shape in asked_shapes(shapes):
        weight = OutlierWeight(num_rows, row_size, max(tokens))
        held = packed_llm_int8_bytes("llm-int8", (num_rows, row_size), weight.qtensor.size_bytes)
        for num_tokens in tokens:
            copies, x = weight.copies(held, num_tokens), weight.tokens(num_tokens)
            yield Benchmark(
                op=OP,
                shape=shape,
                tokens=num_tokens,
                contenders=contenders(weight, x, copies),
                calls=copies,
                moved_bytes=held + 4 * num_tokens * (row_size + num_rows),
                operations=2 * num_tokens * num_rows * row_size,
                arithmetic=operands_of_linear("llm-int8"),
                check=partial(weight.check, num_tokens),
            )


def contenders(weight: Weight, x: np.ndarray, copies: int) -> dict[str, Callable[[], Contender]]:
    builds = {OURS: LlmInt8Linears, "torch-llm-int8": TorchLlmInt8Linears}
    return {name: partial(build, weight.qtensor, x, copies) for name, build in builds.items()}
