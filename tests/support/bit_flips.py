"""`python -m support.bit_flips`: the share of flipped bits that the doctor finds without a source or a manifest.

Run in tests/. Each trial flips one bit of one weight of a tensor. Prints one Markdown row per format and bit.
"""

import sys

import numpy as np

from qbench.markdown_grid import markdown_grid
from qbench.statistics.proportion import share_interval
from quant.doctor.measure import measure
from quant.doctor.tensor_checks import TENSOR_CHECKS
from quant.formats import get_format
from quant.qtensor import QTensor

SEED, FLIPS, ROWS, COLUMNS, SIGMA = 20240217, 100, 128, 256, 0.02
# format -> (uint of a float, lowest exponent bit, number of exponent bits)
FLOATS = {"bf16": ("<u2", 7, 8), "f16": ("<u2", 10, 5), "f32": ("<u4", 23, 8)}


def flipped(fmt: str, bit: int, rng: np.random.Generator) -> QTensor:
    """A tensor of normal weights with one flip; bit: of the exponent, from its lowest on"""
    dtype, first, _ = FLOATS[fmt]
    weight = rng.normal(0, SIGMA, (ROWS, COLUMNS)).astype(np.float32)
    qtensor = get_format(fmt).quantize(weight)
    (name,) = qtensor.parts
    words = np.ascontiguousarray(qtensor.parts[name]).view(dtype).copy()
    words.reshape(-1)[rng.integers(words.size)] ^= words.dtype.type(1 << (first + bit))
    return QTensor(fmt, qtensor.shape, {name: words.view(qtensor.parts[name].dtype)}, qtensor.shared)


def is_found(qtensor: QTensor) -> bool:
    measured = measure("model.layers.0.mlp.up_proj.weight", qtensor, None)
    return any(find(measured) is not None for find in TENSOR_CHECKS.values())


def num_found(fmt: str, bit: int, rng: np.random.Generator, flips: int = FLIPS) -> int:
    return sum(is_found(flipped(fmt, bit, rng)) for _ in range(flips))


def main() -> int:
    rng = np.random.default_rng(SEED)
    rows = [("format", "exponent bit", "found %", "95 %")]
    for fmt, (_, _, num_bits) in FLOATS.items():
        for bit in reversed(range(num_bits)):
            count = num_found(fmt, bit, rng)
            low, high = share_interval(count, FLIPS)
            rows.append((fmt, str(bit), f"{100 * count / FLIPS:.0f}", f"{100 * low:.0f} to {100 * high:.0f}"))
    print(markdown_grid(rows, [False, True, True, True]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
