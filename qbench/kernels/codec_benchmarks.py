"""Encoders and decoders of block formats, next to libggml's: the costs of quantizing a model and of decoding one to
floats.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from cpu_kernels.decode import DECODED_FORMATS, decode_blocks
from cpu_kernels.encode import ENCODED_FORMATS, encode_blocks
from qbench.kernels.benchmark import OURS, Benchmark, Contender
from qbench.kernels.case import Deviation, deviation
from qbench.kernels.linear_benchmarks import COLD_BYTES
from qbench.kernels.peers.ggml_codec import GgmlDecoder, GgmlEncoder
from qbench.speed.units import FP32
from quant.formats import block_format, get_format
from quant.present import present

ENCODE, DECODE = "encode_", "decode_"  # before the format, in the names of ops
ROW_SIZE, ENCODED_ROWS = 2048, 2048  # of a linear of a 1B Llama
DECODED_ROWS = COLD_BYTES // (4 * ROW_SIZE)  # decoders are bound by memory, so no cache may keep the floats
DISTINCT_ROWS = 64  # the rest repeats them, which no kernel can notice
CHECKED_BLOCKS = 64  # that the codec in NumPy, some hundred times as slow, encodes too
SEED = 17


class Encoder:
    """blocks [B, block size] float32 -> bytes; ours, in the fast effort and without importance"""

    def __init__(self, name: str, blocks: np.ndarray) -> None:
        self.name, self.blocks = name, blocks
        self.how = ""

    def run(self) -> None:
        self.data, self.how = encode_blocks(self.name, self.blocks, None, False, None)

    def output(self) -> np.ndarray:
        return self.data


class Decoder:
    """blocks [B, block bytes] uint8 -> float32; ours, into memory that is kept, as the other side's is"""

    def __init__(self, name: str, blocks: np.ndarray) -> None:
        self.name, self.blocks = name, blocks
        self.weights = np.zeros((len(blocks), DECODED_FORMATS[name][0]), np.float32)
        self.how = ""

    def run(self) -> None:
        _, self.how = decode_blocks(self.name, self.blocks, None, self.weights)

    def output(self) -> np.ndarray:
        return self.weights


def timed_codecs() -> list[str]:
    """Names of the ops that `codec_benchmarks` may give."""
    return [*(ENCODE + name for name in ENCODED_FORMATS), *(DECODE + name for name in DECODED_FORMATS)]


def codec_benchmarks(op: str, threads: int) -> Iterator[Benchmark]:
    """Both sides' bytes count: floats and blocks, once each. A decoder has no operations to speak of."""
    encodes, name = op.startswith(ENCODE), op.removeprefix(ENCODE).removeprefix(DECODE)
    fmt = block_format(name)
    some = np.random.default_rng(SEED).standard_normal((DISTINCT_ROWS, ROW_SIZE)).astype(np.float32)
    num_rows = ENCODED_ROWS if encodes else DECODED_ROWS
    weights = np.ascontiguousarray(some[np.arange(num_rows) % DISTINCT_ROWS]).reshape(-1, fmt.block_size)
    data = encode_blocks(name, weights, None, False, None)[0]
    ggml_type = present(fmt.gguf_type)
    if encodes:
        contenders: dict[str, Callable[[], Contender]] = {OURS: partial(Encoder, name, weights)}
        peer, check = partial(GgmlEncoder, ggml_type, weights.reshape(num_rows, ROW_SIZE), threads), check_encoded
    else:
        contenders = {OURS: partial(Decoder, name, data)}
        peer, check = partial(GgmlDecoder, ggml_type, data, fmt.block_size, threads), check_decoded
    yield Benchmark(
        op=op,
        shape=f"{num_rows}x{ROW_SIZE}",
        tokens=None,
        contenders=contenders | {"llama.cpp": peer},
        calls=1,
        moved_bytes=weights.nbytes + data.nbytes,
        operations=None if encodes else 0,
        arithmetic=FP32,
        check=partial(check, name, weights if encodes else data),
    )


def check_encoded(name: str, weights: np.ndarray, data: np.ndarray) -> Deviation:
    """The squared error of the first blocks against the NumPy codec's; the last rows must equal the first ones.

    Other searches may lose half as much again (libggml's Q2_K: a third); a wrong result loses the weights themselves.
    """
    fmt = block_format(name)
    if data.shape != (len(weights), fmt.block_bytes):
        return Deviation(float("inf"), 0.0)
    blocks = weights[:CHECKED_BLOCKS]

    def lost(encoded: np.ndarray) -> float:
        return float(np.square(fmt.dequantize_blocks(encoded) - blocks).sum())

    repeats = DISTINCT_ROWS * ROW_SIZE // fmt.block_size  # the last rows are encoded as the first ones are
    same = np.array_equal(data[-repeats:], data[:repeats])
    best = lost(fmt.quantize_blocks(blocks))
    return Deviation(lost(data[:CHECKED_BLOCKS]) - best if same else float("inf"), 0.5 * best)


def check_decoded(name: str, data: np.ndarray, weights: np.ndarray) -> Deviation:
    """The distinct rows against the NumPy codec's; all others must equal them."""
    repeats = DISTINCT_ROWS * ROW_SIZE // get_format(name).block_size
    if not (weights.reshape(-1, repeats, weights.shape[1]) == weights[:repeats]).all():
        return Deviation(float("inf"), 0.0)
    return deviation(weights[:repeats], block_format(name).dequantize_blocks(data[:repeats]), 0.0)
