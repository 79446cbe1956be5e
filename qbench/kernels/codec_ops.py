"""Problems of the encoders and decoders of formats, the trellis search, and the Gram matrices of calibration."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from cpu_kernels._ext import trellis_encode
from cpu_kernels.decode import DECODED_FORMATS, decode_blocks
from cpu_kernels.encode import EFFORTS, ENCODED_FORMATS, encode_blocks
from cpu_kernels.gram import add_gram, add_gram_ref
from qbench.kernels.case import Deviation, Kernel, Problem, deviation
from quant.formats import block_format, get_format
from quant.formats.trellis import TILE, TrellisCode

NUM_BLOCKS = (1, 3, 131)  # a vector holds 1, 8 or 16 blocks
IMPORTANCE_ROWS = 3
ENCODE_SEED = 11


def encoders() -> list[Kernel]:
    return [Kernel(f"encode_{name}", partial(encode_problems, name)) for name in ENCODED_FORMATS]


def encode_problems(name: str) -> Iterator[Problem]:
    """Usual weights, long tails, ties, zeros and magnitudes at both ends, with and without importance."""
    rng, fmt = np.random.default_rng(ENCODE_SEED), get_format(name)
    blocks = hard_blocks(NUM_BLOCKS[-1], fmt.block_size, rng)
    importance = np.maximum(rng.random((IMPORTANCE_ROWS, fmt.block_size)) ** 4, 2.0**-20).astype(np.float32)
    for effort in EFFORTS:
        for rows in (None, importance):
            for num_blocks in NUM_BLOCKS:
                yield encode_problem(name, blocks[:num_blocks], rows, effort)


def encode_problem(name: str, blocks: np.ndarray, importance: np.ndarray | None, effort: str) -> Problem:
    weighted = "" if importance is None else ", importance"

    def run(isa: str) -> tuple[np.ndarray, str]:
        return encode_blocks(name, blocks, importance, effort == "best", isa)

    @cache
    def oracle() -> np.ndarray:
        of_blocks = None if importance is None else importance[np.arange(len(blocks)) % len(importance)]
        return block_format(name).quantize_blocks(blocks, of_blocks, effort)

    return Problem(f"B={len(blocks)} {effort}{weighted}", run, lambda data: deviation(data, oracle(), 0.0))


def hard_blocks(num_blocks: int, block_size: int, rng: np.random.Generator) -> np.ndarray:
    """[B, block_size] float32, the kinds that break encoders in turn, so that few blocks have them all."""
    blocks = 0.02 * rng.standard_normal((num_blocks, block_size))
    blocks[1::8] = rng.standard_t(2, blocks[1::8].shape)
    blocks[2::8] = rng.integers(-9, 9, blocks[2::8].shape)  # ties, in the largest magnitude too
    blocks[3::8] *= rng.random(blocks[3::8].shape) < 0.03  # nearly all zero
    blocks[4::8] *= 10.0 ** rng.integers(-43, 39, (len(blocks[4::8]), 1))
    blocks[5::8] = np.abs(blocks[5::8]) + 0.3  # no weight near zero
    blocks[6::8] = rng.choice([0.0, -0.0, 0.7, -0.7], (len(blocks[6::8]), 1))
    return np.clip(blocks, -3e38, 3e38).astype(np.float32)


DECODE_SEED = 15


def decoders() -> list[Kernel]:
    return [Kernel(f"decode_{name}", partial(decode_problems, name)) for name in DECODED_FORMATS]


def decode_problems(name: str) -> Iterator[Problem]:
    """Blocks of random bytes: every code, and scales that are subnormal, infinite and NaN among them."""
    _, block_bytes = DECODED_FORMATS[name]
    blocks = np.random.default_rng(DECODE_SEED).integers(0, 256, (NUM_BLOCKS[-1], block_bytes), dtype=np.uint8)
    for num_blocks in NUM_BLOCKS:
        yield decode_problem(name, blocks[:num_blocks])


def decode_problem(name: str, blocks: np.ndarray) -> Problem:
    @cache
    def oracle() -> np.ndarray:
        with np.errstate(all="ignore"):
            return block_format(name).dequantize_blocks(blocks)

    return Problem(
        f"B={len(blocks)}",
        lambda isa: decode_blocks(name, blocks, isa),
        lambda weights: deviation(weights, oracle(), 0.0),
    )


# It returns the instruction set that ran; cpu_kernels.trellis does not.

TRELLIS_CODES = (TrellisCode(1, 8), TrellisCode(2, 10), TrellisCode(3, 9), TrellisCode(4, 8), TrellisCode(4, 11))
NUM_TILES = 2
TRELLIS_SEED = 29


def trellis() -> list[Kernel]:
    return [Kernel("trellis", lambda: map(trellis_problem, TRELLIS_CODES))]


def trellis_problem(code: TrellisCode) -> Problem:
    x = trellis_tiles(NUM_TILES)

    def run(isa: str) -> tuple[np.ndarray, str]:
        return trellis_encode(x, code.bits, code.state_bits, isa)

    @cache
    def oracle() -> np.ndarray:
        return code.encode_ref(x)

    label = f"bits={code.bits} state_bits={code.state_bits}"
    return Problem(label, run, lambda got: deviation(got, oracle(), 0.0))


def trellis_tiles(number: int) -> np.ndarray:
    """Usual values of every other tile; the others go far beyond the code's largest."""
    x = 140 * np.random.default_rng(TRELLIS_SEED).standard_normal((number, TILE))
    x[1::2] *= 10
    return x.astype(np.float32)


GRAM_SHAPES = ((1, 1), (3, 63), (131, 65), (130, 131))  # M, K; tokens are in pairs, 64 of them at once, columns in 64
GRAM_SEED = 13


def gram() -> list[Kernel]:
    return [Kernel("gram", gram_problems)]


def gram_problems() -> Iterator[Problem]:
    rng = np.random.default_rng(GRAM_SEED)
    for num_tokens, row_size in GRAM_SHAPES:
        yield gram_problem(rng.standard_normal((num_tokens, row_size)).astype(np.float32))


def gram_problem(x: np.ndarray) -> Problem:
    num_tokens, row_size = x.shape

    def run(isa: str) -> tuple[np.ndarray, str]:
        result = np.ones((row_size, row_size), dtype=np.float32)
        ran = add_gram(x, result, isa=isa)
        return np.triu(result), ran

    def check(got: np.ndarray) -> Deviation:
        """float32 sums of num_tokens exact products, whose roundings are at most 2**-24 of the magnitudes' sum each."""
        expected, magnitudes = np.ones((2, row_size, row_size))
        add_gram_ref(x, expected)
        add_gram_ref(np.abs(x), magnitudes)
        return deviation(got, np.triu(expected), 2**-24 * (num_tokens + 1) * magnitudes)

    return Problem(f"M={num_tokens} K={row_size}", run, check)
