"""Weights of a trellis code in a basis without outliers, as QTIP and EXL3 keep them.

Each weight takes few new bits, and is decided by these and by those before it. A tile is 256 values and a circle of
256 * bits bits, most significant bit first. State t is the `state_bits` bits up to and including symbol t, and its
value is

    h = state * MULTIPLIER + ADDEND (mod 2^32)        value = sum of the four bytes of h - 510

so neighbours share bits, no table is read, and the values are near a normal distribution of deviation 147.8. The
constants are the best of 400 random pairs at 2 bits and 12 state bits; those of QTIP's 1MAD lose 3.5 % there.
source   Tseng et al. 2024, arXiv:2406.11235 (QTIP): the bitshift trellis, 1MAD, and algorithm 4 for the circle
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import numpy as np

from quant.errors import InputError
from quant.extension import import_kernels
from quant.formats.base import Format
from quant.qtensor import QTensor
from quant.turn import turn_runs

TILE = 256
MULTIPLIER, ADDEND = 2472362639, 2959306914
LARGEST_BITS, LEAST_STATE_BITS, LARGEST_STATE_BITS = 4, 8, 16
WORD_BITS = 16


def trellis_kernels() -> ModuleType | None:
    """cpu_kernels.trellis; None if this installation has no extension, so that the NumPy code is used."""
    return import_kernels("cpu_kernels.trellis")


@dataclass(frozen=True, slots=True)
class TrellisCode:
    """bits         of one value, 1 to 4
    state_bits   bits that decide one value; each one more doubles the time of encoding
    """

    bits: int
    state_bits: int

    @property
    def num_words(self) -> int:
        """Words of 16 bits in a tile."""
        return TILE * self.bits // WORD_BITS

    def encode(self, x: np.ndarray) -> np.ndarray:
        """x [tiles, 256] float32, finite, in the units of the values -> [tiles, num_words] uint16"""
        kernels = trellis_kernels()
        if kernels is None:
            return self.encode_ref(x)
        return kernels.encode(np.ascontiguousarray(x, dtype=np.float32), self.bits, self.state_bits)

    def decode(self, packed: np.ndarray) -> np.ndarray:
        """packed [tiles, num_words] uint16 -> [tiles, 256] float32, whole numbers from -510 to 510"""
        kernels = trellis_kernels()
        if kernels is None:
            return self.decode_ref(packed)
        return kernels.decode(np.ascontiguousarray(packed), self.bits, self.state_bits)

    def encode_ref(self, x: np.ndarray) -> np.ndarray:
        """Two runs of the Viterbi algorithm: over the tile turned by half, to find the bits where the circle closes,
        and over the tile with these bits given.
        """
        x = np.asarray(x, dtype=np.float32)
        turned = self._search(np.roll(x, -(TILE // 2), axis=1), None)
        states = self._search(x, turned[:, TILE // 2] >> self.bits)
        shifts = np.arange(self.bits - 1, -1, -1)
        stream = (states[:, :, None] >> shifts & 1).reshape(len(x), -1, WORD_BITS)
        return (stream << np.arange(WORD_BITS - 1, -1, -1)).sum(axis=2).astype(np.uint16)

    def decode_ref(self, packed: np.ndarray) -> np.ndarray:
        return _values(self.state_bits)[self.states(packed)]

    def states(self, packed: np.ndarray) -> np.ndarray:
        """[tiles, 256] int64"""
        words = packed.astype(np.int64)
        pairs = np.roll(words, 1, axis=1) << WORD_BITS | words  # each word behind the one before it
        last = (np.arange(TILE) + 1) * self.bits - 1  # the last bit of each state
        shifts = WORD_BITS - 1 - last % WORD_BITS
        return pairs[:, last // WORD_BITS] >> shifts & ((1 << self.state_bits) - 1)

    def _search(self, x: np.ndarray, ends: np.ndarray | None) -> np.ndarray:
        """States [tiles, 256] of the paths of least squared error that begin after and end in the bits `ends` [tiles],
        or in any. Ties go to the lowest symbol.
        """
        rows, num_ends = np.arange(len(x)), 1 << self.state_bits - self.bits
        values = _values(self.state_bits)
        cost = np.zeros((len(x), num_ends), dtype=np.float32)
        if ends is not None:
            cost[:] = np.inf
            cost[rows, ends] = 0
        oldest = np.empty((TILE, len(x), num_ends), dtype=np.uint8)
        for t in range(TILE):
            error = values - x[:, t : t + 1]  # [tiles, states]
            total = np.repeat(cost, 1 << self.bits, axis=1) + error * error
            of_symbol = total.reshape(len(x), 1 << self.bits, num_ends)
            oldest[t] = of_symbol.argmin(axis=1)
            cost = of_symbol.min(axis=1)
        end = cost.argmin(axis=1) if ends is None else ends
        states = np.empty((len(x), TILE), dtype=np.int64)
        for t in range(TILE - 1, -1, -1):
            states[:, t] = end + oldest[t, rows, end].astype(np.int64) * num_ends
            end = states[:, t] >> self.bits
        return states


@lru_cache
def _values(state_bits: int) -> np.ndarray:
    """[2**state_bits] float32"""
    hashed = (np.arange(1 << state_bits, dtype=np.uint64) * MULTIPLIER + ADDEND).astype("<u4")
    return hashed.view(np.uint8).reshape(-1, 4).sum(axis=1, dtype=np.float32) - np.float32(510)


NAME = re.compile(r"trellis-w([1-4])(?:-l([89]|1[0-6]))?")  # trellis-w2-l12: bits, state bits (absent: 16)
SIDE = 16  # rows and columns of a tile
LARGEST_TURN = 128  # input features that are turned together; a rank may hold any whole run of them
SMALLEST_SCALE = np.float32(2.0**-100)  # of rows of zeros: a scale of 0 would divide by 0
# Deviation of a row in units of the code's values that has the least error, by bits. The values deviate by 147.8; fewer
# bits leave more of the deviation to the error.
DEVIATION = {1: 170.0, 2: 142.0, 3: 135.0, 4: 130.0}


class TrellisFormat(Format):
    """weight = L^T (scale * value) R^T, value of the trellis code; inputs are not rounded

    parts   weight_trellis   [N, K * bits / 8] uint8   words of 16 bits, least significant byte first
            weight_scale     [N, 1] float32

    L turns 16 rows together and R up to 128 input features: signs, then a Hadamard matrix. A tile is 16 rows and 16
    columns of the turned weight, one row after the other. Its words are spread over its rows in order, 2 * bits bytes
    in each, so runs of 16 rows from a multiple of 16 can be read alone.
    source  Tseng et al. 2024, arXiv:2406.11235 (QTIP)
    """

    block_size = SIDE
    rows_stand_alone = False

    def __init__(self, bits: int, state_bits: int = LARGEST_STATE_BITS) -> None:
        self.bits = bits
        self.code = TrellisCode(bits, state_bits)
        self.name = f"trellis-w{bits}" + ("" if state_bits == LARGEST_STATE_BITS else f"-l{state_bits}")

    @classmethod
    def parse(cls, name: str) -> "TrellisFormat | None":
        """The format that a name like "trellis-w2" or "trellis-w3-l12" means; None for other names."""
        match = NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2] or LARGEST_STATE_BITS)) if match else None

    @property
    def bits_per_weight(self) -> float:
        """Those of the code; the scale adds 32 / K, which only size_bytes can know."""
        return float(self.bits)

    def check_matrix(self, shape: tuple[int, ...]) -> None:
        """raises InputError if this is no matrix [N, K] of whole tiles"""
        if len(shape) != 2 or shape[0] % SIDE:
            raise InputError(f"{self.name} holds matrices [N, K] with N a multiple of {SIDE}, got shape {list(shape)}")
        self.check_row(shape[1])

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        self.check_matrix(shape)
        return shape[0] * (shape[1] * self.bits // 8 + 4)

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        return self._quantize(weight, self.code.encode_ref)

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        return self._quantize(weight, self.code.encode)

    def _quantize(self, weight: np.ndarray, encode) -> QTensor:
        self.check_matrix(weight.shape)
        if not np.isfinite(weight).all():
            raise InputError(f"{self.name} holds finite weights, got NaN or inf; check the source")
        turned = turn(weight)
        scale = self.scale_of(turned)
        return self.pack(encode(tiles_of(turned / scale)), scale, weight.shape)

    def scale_of(self, turned: np.ndarray) -> np.ndarray:
        """turned [N, K] -> [N, 1] float32"""
        deviation = np.sqrt(np.square(turned, dtype=np.float64).mean(axis=1, keepdims=True))
        return np.maximum(deviation / DEVIATION[self.bits], SMALLEST_SCALE).astype(np.float32)

    def pack(self, packed: np.ndarray, scale: np.ndarray, shape: tuple[int, ...]) -> QTensor:
        """packed [tiles, words] uint16, rows of tiles one after the other; scale [N, 1] float32"""
        words = packed.reshape(shape[0] // SIDE, shape[1] // SIDE, SIDE, self.bits)
        words = words.transpose(0, 2, 1, 3).astype("<u2")
        data = np.ascontiguousarray(words).view(np.uint8).reshape(shape[0], -1)
        return QTensor(self.name, shape, {"weight_trellis": data, "weight_scale": scale})

    def words_of(self, qtensor: QTensor) -> np.ndarray:
        """[tiles, words] uint16, as `pack` takes them"""
        self.check_matrix(qtensor.shape)
        num_rows, row_size = qtensor.shape
        words = np.ascontiguousarray(qtensor.parts["weight_trellis"]).view("<u2")
        tiles = words.reshape(num_rows // SIDE, SIDE, row_size // SIDE, self.bits).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(tiles).reshape(-1, self.code.num_words).astype(np.uint16)

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        return self._dequantize(qtensor, self.code.decode_ref)

    def dequantize(self, qtensor: QTensor) -> np.ndarray:
        return self._dequantize(qtensor, self.code.decode)

    def _dequantize(self, qtensor: QTensor, decode) -> np.ndarray:
        values = matrix_of(decode(self.words_of(qtensor)), qtensor.shape)
        return turn_back(values * qtensor.parts["weight_scale"])

    def take_columns(self, qtensor: QTensor, columns: slice) -> QTensor:
        num_rows, row_size = qtensor.shape
        size = turn_size(row_size)
        if columns.start % size or columns.stop % size or turn_size(columns.stop - columns.start) != size:
            raise InputError(
                f"{self.name} turns {size} input features together, got a part from {columns.start} to {columns.stop}"
            )
        per_row = qtensor.parts["weight_trellis"]
        some = per_row[:, columns.start * self.bits // 8 : columns.stop * self.bits // 8]
        parts = {**qtensor.parts, "weight_trellis": np.ascontiguousarray(some)}
        return QTensor(self.name, (num_rows, columns.stop - columns.start), parts)


def tiles_of(matrix: np.ndarray) -> np.ndarray:
    """[N, K] -> [tiles, 256], rows of tiles one after the other"""
    num_rows, row_size = matrix.shape
    tiles = matrix.reshape(num_rows // SIDE, SIDE, row_size // SIDE, SIDE).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(tiles).reshape(-1, TILE)


def matrix_of(tiles: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The inverse of `tiles_of`."""
    parts = tiles.reshape(shape[0] // SIDE, shape[1] // SIDE, SIDE, SIDE).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(parts).reshape(shape)


def turn_size(row_size: int) -> int:
    """How many input features are turned together: the largest power of two that divides them, at most 128."""
    return min(row_size & -row_size, LARGEST_TURN)


def turn(weight: np.ndarray) -> np.ndarray:
    """L weight R, float32 [N, K]; all steps are single products, sums and differences in a fixed order."""
    turned = turn_runs(weight, turn_size(weight.shape[1]))
    return np.ascontiguousarray(turn_runs(turned.T, SIDE).T)


def turn_back(turned: np.ndarray) -> np.ndarray:
    """L^T turned R^T, float32 [N, K]"""
    weight = turn_runs(turned, turn_size(turned.shape[1]), back=True)
    return np.ascontiguousarray(turn_runs(weight.T, SIDE, back=True).T)
