"""The facts of one tensor that the checks need, its codes too, measured some rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from quant.doctor.extremes import NUM_LARGEST, NUM_SMALLEST
from quant.formats import Codes, dequantize, get_format
from quant.formats.base import rows_of
from quant.qtensor import QTensor

# Weights in float32 at a time: 4 MiB, as in quant.quantize.
CHUNK_WEIGHTS = 1 << 20
# A group of less energy than this share of its neighbours' mean may well round to zeros under a coarser scale.
FAINT = 1e-4
# Error over energy of a row: zeros would be half as far away. Rounding alone reaches 1 if a scale is far too wide.
LOST_ROW = 2.0
EXPONENT_OFFSET = 149  # float32's smallest subnormal, 2^-149, has exponent -148


@dataclass(slots=True)
class Measured:
    """One tensor. Counts are of weights unless stated otherwise.

    num_coded            weights under a scale other than 0, of which `num_at_end` have the lowest or highest code
    num_levels, run      see `quant.formats.Codes`; 0 for plain floats
    num_bad_scales       weights under a scale that is NaN or inf, or that the format has no place for
    scale_min, scale_max magnitudes of the scales of weights that are not 0; of plain floats, the weights' own
    largest, smallest    magnitudes at either end, except 0, the outermost first: of plain floats the weights', else
                         those of the largest scale of each group
    num_magnitudes       those that `largest` and `smallest` are the ends of
    exponents            power of two -> weights whose scale is below it and not below its half
    num_dead_groups      groups of zeros; `num_killed_groups` of them are not so in the reference
    signal, noise        sum of the reference's squares and of the differences' squares; None without a reference
    num_lost_rows        rows further from the reference's than zeros are
    """

    name: str
    format: str
    shape: tuple[int, ...]
    num_not_finite: int = 0
    num_coded: int = 0
    num_at_end: int = 0
    num_levels: int = 0
    run: int = 0
    num_bad_scales: int = 0
    scale_min: float = float("inf")
    scale_max: float = 0.0
    largest: tuple[float, ...] = ()
    smallest: tuple[float, ...] = ()
    num_magnitudes: int = 0
    exponents: dict[int, int] = field(default_factory=dict)
    num_groups: int = 0
    num_dead_groups: int = 0
    num_killed_groups: int = 0
    signal: float | None = None
    noise: float | None = None
    num_lost_rows: int = 0

    @property
    def saturation(self) -> float | None:
        """Share of codes at an end of the range."""
        return self.num_at_end / self.num_coded if self.num_coded else None

    @property
    def sqnr_db(self) -> float | None:
        """10 log10(signal / noise); None without a reference, inf for equal weights."""
        if self.signal is None or self.noise is None or not np.isfinite(self.noise):
            return None
        if self.noise == 0:
            return float("inf")
        return 10 * float(np.log10(max(self.signal, np.finfo(np.float64).tiny) / self.noise))

    @property
    def median_exponent(self) -> int | None:
        """The power of two above the median of scales."""
        half, seen = sum(self.exponents.values()) / 2, 0
        for exponent, count in sorted(self.exponents.items()):
            seen += count
            if seen >= half:
                return exponent
        return None


def measure(name: str, qtensor: QTensor, reference: QTensor | None) -> Measured:
    """reference: the same tensor before it was quantized, or None"""
    measured = Measured(name, qtensor.format, qtensor.shape)
    if reference is not None:
        measured.signal = measured.noise = 0.0
    with np.errstate(all="ignore"):  # damaged scales overflow; the results are counted
        for rows in _row_chunks(qtensor.shape):
            chunk = _take(qtensor, rows)
            weight = dequantize(chunk)
            original = None if reference is None else dequantize(_take(reference, rows))
            measured.num_not_finite += int(weight.size - np.isfinite(weight).sum())
            if weight.ndim == 1:
                _add_floats(measured, weight)
            else:
                _add_codes(measured, chunk, weight)
                _add_groups(measured, chunk, weight, original)
            if original is not None:
                _add_noise(measured, weight, original)
    return measured


def _row_chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    step = max(1, CHUNK_WEIGHTS // rows_of(shape)[1])
    return (slice(start, min(start + step, shape[0])) for start in range(0, shape[0], step))


def _take(qtensor: QTensor, rows: slice) -> QTensor:
    parts = {part: array[rows] for part, array in qtensor.parts.items()}
    return QTensor(qtensor.format, (rows.stop - rows.start, *qtensor.shape[1:]), parts, qtensor.shared)


def _add_codes(measured: Measured, chunk: QTensor, weight: np.ndarray) -> None:
    codes = read_codes(chunk)
    if codes is None:
        _add_floats(measured, weight)
        return
    measured.num_levels, measured.run = codes.num_levels, codes.run
    used = codes.scale != 0
    measured.num_coded += int(used.sum())
    measured.num_at_end += int((codes.at_end & used).sum())
    _add_ends(measured, _group_scales(chunk, codes.scale, weight))
    bad = ~np.isfinite(codes.scale)
    if not codes.signed:
        bad |= (codes.scale < 0) | (~used & (codes.level != 0))
    measured.num_bad_scales += int(bad.sum())
    _add_scales(measured, _magnitudes(codes.scale[weight != 0]))


def _magnitudes(values: np.ndarray) -> np.ndarray:
    """Those that are finite and not 0, in one dimension"""
    magnitude = np.abs(values)
    return magnitude[np.isfinite(magnitude) & (magnitude > 0)]


def _add_floats(measured: Measured, weight: np.ndarray) -> None:
    """Magnitudes of plain floats: as scales, and those at either end."""
    known = _magnitudes(weight)
    _add_scales(measured, known)
    _add_ends(measured, known)


def _add_ends(measured: Measured, known: np.ndarray) -> None:
    """known [n], of `_magnitudes`"""
    if not known.size:
        return
    high, low = min(NUM_LARGEST, known.size), min(NUM_SMALLEST, known.size)
    outer = np.partition(known, sorted({low - 1, known.size - high}))
    measured.largest = tuple(
        sorted([*measured.largest, *outer[known.size - high :].tolist()], reverse=True)[:NUM_LARGEST]
    )
    measured.smallest = tuple(sorted([*measured.smallest, *outer[:low].tolist()])[:NUM_SMALLEST])
    measured.num_magnitudes += known.size


def _group_scales(chunk: QTensor, scale: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The largest scale of each group that has weights other than 0: as many as there are stored scales."""
    order, size = group_columns(chunk)
    used = np.where(weight != 0, np.abs(scale), 0)
    used = used if order is None else used[:, order]
    return _magnitudes(used.reshape(-1, size).max(axis=1))


def _add_scales(measured: Measured, scale: np.ndarray) -> None:
    """scale [n], of `_magnitudes`"""
    if not scale.size:
        return
    measured.scale_min = min(measured.scale_min, float(scale.min()))
    measured.scale_max = max(measured.scale_max, float(scale.max()))
    counts = np.bincount(np.frexp(scale)[1] + EXPONENT_OFFSET)
    for place in np.flatnonzero(counts).tolist():
        exponent = place - EXPONENT_OFFSET
        measured.exponents[exponent] = measured.exponents.get(exponent, 0) + int(counts[place])


def _add_groups(measured: Measured, chunk: QTensor, weight: np.ndarray, original: np.ndarray | None) -> None:
    order, size = group_columns(chunk)

    def energies(values: np.ndarray) -> np.ndarray:
        values = values if order is None else values[:, order]
        return np.square(values.reshape(-1, size), dtype=np.float64).sum(axis=1)

    dead = energies(weight) == 0
    measured.num_groups += dead.size
    measured.num_dead_groups += int(dead.sum())
    if original is not None and dead.any():
        wanted = energies(original)
        measured.num_killed_groups += int((dead & (wanted > FAINT * wanted.mean())).sum())


def _add_noise(measured: Measured, weight: np.ndarray, original: np.ndarray) -> None:
    rows = (len(weight), -1)
    signal = np.square(original.reshape(rows), dtype=np.float64).sum(axis=1)
    noise = np.square((weight - original).reshape(rows), dtype=np.float64).sum(axis=1)
    measured.signal = (measured.signal or 0.0) + float(signal.sum())
    measured.noise = (measured.noise or 0.0) + float(noise.sum())
    if weight.ndim > 1:
        measured.num_lost_rows += int((~(noise <= LOST_ROW * signal) & (signal > FAINT * signal.mean())).sum())


def read_codes(qtensor: QTensor) -> Codes | None:
    """The codes of a matrix; None for formats of plain floats."""
    return get_format(qtensor.format).weight_codes(qtensor)


def group_columns(qtensor: QTensor) -> tuple[np.ndarray | None, int]:
    """(order of the columns in which groups are contiguous, None for their own; weights in a group)

    A group has a stored scale of its own: a block, a group of input features, or a row.
    """
    fmt, row_size = get_format(qtensor.format), qtensor.shape[-1]
    g_idx = qtensor.shared.get("g_idx")
    order = None if g_idx is None else np.argsort(g_idx, kind="stable")
    return order, fmt.block_size if fmt.block_size > 1 else row_size
