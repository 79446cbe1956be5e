"""`python -m support.bit_flips`: the share of flipped bits that the doctor finds without a source or a manifest.

Run in tests/. Each trial flips one bit of one weight or scale of a tensor. Prints one Markdown row per format and bit,
next to the share that a detector finds which knows the weights' law, then the false alarms of whole tensors.
`--model SPEC` takes the matrices of a model instead of random ones.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy import stats

from qbench.sources import open_source
from qbench.statistics.intervals import share_interval
from qbench.words.read import markdown_grid
from quant.doctor.extremes import MOST_CHANCE
from quant.doctor.measure import measure
from quant.doctor.tensor_checks import TENSOR_CHECKS
from quant.formats import dequantize, get_format
from quant.qtensor import QTensor

SEED, FLIPS, ROWS, COLUMNS, SIGMA = 20240217, 100, 128, 256, 0.02
HEALTHY = 500  # tensors of each law
# format -> (uint of a float, lowest exponent bit, number of exponent bits)
FLOATS = {"bf16": ("<u2", 7, 8), "f16": ("<u2", 10, 5), "f32": ("<u4", 23, 8)}
# format -> first byte of a block's float16 scale
SCALES = {"q4_0": 0, "q8_0": 0, "q4_k": 0, "q6_k": 208}
LAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(0, SIGMA, shape),
    "Laplace": lambda rng, shape: rng.laplace(0, SIGMA, shape),
    "Student, 5 degrees": lambda rng, shape: SIGMA * rng.standard_t(5, shape),
    "Student, 3 degrees": lambda rng, shape: SIGMA * rng.standard_t(3, shape),
    "uniform": lambda rng, shape: rng.uniform(-SIGMA, SIGMA, shape),
    "rows of unlike spread": lambda rng, shape: rng.normal(0, SIGMA, shape) * rng.lognormal(0, 1, (shape[0], 1)),
    "three outlier columns": lambda rng, shape: rng.normal(0, SIGMA, shape) * np.repeat([1, 20], [shape[1] - 3, 3]),
    "half pruned": lambda rng, shape: rng.normal(0, SIGMA, shape) * (rng.random(shape) < 0.5),
}
Weights = Callable[[np.random.Generator], np.ndarray]


def normal(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(0, SIGMA, (ROWS, COLUMNS)).astype(np.float32)


def flipped(fmt: str, bit: int, rng: np.random.Generator, draw: Weights = normal) -> QTensor:
    """A tensor with one flip; bit: of the exponent of a weight, or of a block's scale, from its lowest on"""
    qtensor = get_format(fmt).quantize(draw(rng))
    (name,) = qtensor.parts
    part = np.ascontiguousarray(qtensor.parts[name]).copy()
    if fmt in FLOATS:
        dtype, first, _ = FLOATS[fmt]
        words = part.view(dtype).reshape(-1)
        words[rng.integers(words.size)] ^= words.dtype.type(1 << (first + bit))
    else:
        blocks = part.view(np.uint8).reshape(-1, get_format(fmt).block_bytes)
        blocks[rng.integers(len(blocks)), SCALES[fmt] + 1] ^= np.uint8(1 << (bit + 2))
    return QTensor(fmt, qtensor.shape, {name: part}, qtensor.shared)


def is_found(qtensor: QTensor) -> bool:
    measured = measure("model.layers.0.mlp.up_proj.weight", qtensor, None)
    return any(find(measured) is not None for find in TENSOR_CHECKS.values())


def num_found(fmt: str, bit: int, rng: np.random.Generator, flips: int = FLIPS, draw: Weights = normal) -> int:
    return sum(is_found(flipped(fmt, bit, rng, draw)) for _ in range(flips))


def is_findable(qtensor: QTensor) -> bool:
    """Whether a detector that knows the normal law of the weights finds it, with as few false alarms as the doctor."""
    known = np.abs(dequantize(qtensor))
    if not np.isfinite(known).all():
        return True
    above = known.size * 2 * stats.norm.sf(float(known.max()) / SIGMA)
    below = known.size * (1 - 2 * stats.norm.sf(known[known > 0].min() / SIGMA))
    return min(above, below) < MOST_CHANCE


def num_findable(fmt: str, bit: int, rng: np.random.Generator, flips: int = FLIPS) -> int:
    return sum(is_findable(flipped(fmt, bit, rng)) for _ in range(flips))


def false_alarms(draw: Weights, fmt: str, count: int, rng: np.random.Generator) -> int:
    return sum(is_found(get_format(fmt).quantize(draw(rng))) for _ in range(count))


def matrices(spec: str) -> Iterator[np.ndarray]:
    """Each of a model that K-quants can hold, in float32."""
    source = open_source(spec)
    for name, info in source.tensors.items():
        if len(info.shape) == 2 and info.shape[1] % 256 == 0:
            yield dequantize(source.read(name))


def one_of(weights: Sequence[np.ndarray]) -> Weights:
    """A matrix of these, each as likely."""
    return lambda rng: weights[rng.integers(len(weights))]


def bits() -> Iterator[tuple[str, int]]:
    for fmt, (_, _, num_bits) in FLOATS.items():
        yield from ((fmt, bit) for bit in reversed(range(num_bits)))
    for fmt in SCALES:
        yield from ((fmt, bit) for bit in reversed(range(5)))


def row(fmt: str, bit: int, draw: Weights, random: bool) -> tuple[str, ...]:
    count = num_found(fmt, bit, np.random.default_rng(SEED + bit), draw=draw)
    low, high = share_interval(count, FLIPS)
    most = str(num_findable(fmt, bit, np.random.default_rng(SEED + bit))) if random and fmt in FLOATS else "n/a"
    of = "weight" if fmt in FLOATS else "scale"
    return fmt, of, str(bit), f"{100 * count / FLIPS:.0f}", f"{100 * low:.0f} to {100 * high:.0f}", most


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="spec of a model whose matrices are damaged")
    given = parser.parse_args(argv).model
    held = list(matrices(given)) if given else []
    draw = one_of(held) if given else normal
    rows = [row(fmt, bit, draw, not given) for fmt, bit in bits()]
    head = ("format", "part", "exponent bit", "found %", "95 %", "with the law known %")
    print(markdown_grid([head, *rows], [False, False, True, True, True, True]))
    alarms = [("law", "format", "tensors", "false alarms")]
    for name, law in () if given else LAWS.items():
        for fmt in ("bf16", "q4_0"):
            found = false_alarms(lambda rng, law=law: law(rng, (ROWS, COLUMNS)).astype(np.float32), fmt, HEALTHY,
                                 np.random.default_rng(SEED))  # fmt: skip
            alarms.append((name, fmt, str(HEALTHY), str(found)))
    for fmt in (*FLOATS, *SCALES) if given else ():
        alarms.append((given, fmt, str(len(held)), str(sum(is_found(get_format(fmt).quantize(one)) for one in held))))
    print("\n" + markdown_grid(alarms, [False, False, True, True]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
