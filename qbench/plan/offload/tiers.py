"""The tiers of this machine as a decode step meets them: the disk, products of packed weights, and the rest."""

import importlib
import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar, Self

import numpy as np

from qbench.plan.offload.costs import DiskRates
from qbench.plan.offload.stream_rates import stream_rate
from qbench.runtime.offload.direct_file import DirectFile
from qbench.runtime.offload.region import reserve
from qbench.runtime.offload.streamer import CHUNK_BYTES
from qbench.runtime.offload.units import PAGE, PlacedLinear, Unit, round_up
from quant.atomic import check_target
from quant.errors import InputError
from quant.json_data import JsonData
from quant.present import present

PROBE_BYTES = 512 << 20  # of a file to read, before the model has its own
WEIGHT_BYTES = 128 << 20  # of the weights that products are timed with: more than a last-level cache
PRODUCT_S = 0.3  # of each timing
SMALL_READS = 64


@dataclass(frozen=True, slots=True)
class Overheads(JsonData):
    """Seconds per step at a batch and a context.

    layer_s   of a layer beyond its products; of a model with experts, of a layer that has them
    other_s   of everything else beyond the head's product; the first layers without experts among it
    """

    layer_s: float
    other_s: float


@dataclass(frozen=True, slots=True)
class Tiers(JsonData):
    """Measured rates.

    disk       as the streamer reads
    product_s  format -> seconds per byte of packed weight of a product with one batch, by all threads
    overheads  of a step
    """

    json_flat: ClassVar[tuple[str, ...]] = ("disk",)

    disk: DiskRates
    product_s: Mapping[str, float]
    overheads: Overheads


class DiskProbe:
    """A file on the disk whose rates are measured; a context manager, which ends with its temporary file.

    disk     a file to read, or a folder that a file is written to
    units    that every forward pass reads
    raises   InputError for a folder that cannot be written to, and a disk without room for the file
    """

    def __init__(self, disk: Path, units: Sequence[Unit]) -> None:
        self._disk, self._units, self._open = disk, units, ExitStack()
        self._path: Path | None = disk if disk.is_file() else None
        self._found: list[DiskRates] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._open.close()

    def measure(self) -> None:
        """Rates of the streamer, and seconds of a small read."""
        path = self._path = self._path or self._made()
        self._found.append(DiskRates(stream_rate(path, self._units), _latency(path)))

    @property
    def path(self) -> Path:
        """The file that was read"""
        return present(self._path)

    @property
    def rates(self) -> DiskRates:
        """Medians of all measurements so far: a disk that others share differs from second to second."""
        return DiskRates(
            median(one.bytes_s for one in self._found),
            median(one.latency_s for one in self._found),
        )

    def _made(self) -> Path:
        size = max(PROBE_BYTES, *(round_up(unit.size_bytes, CHUNK_BYTES) for unit in self._units))
        check_target(self._disk / "probe", lambda _: False, size)
        file = self._open.enter_context(tempfile.NamedTemporaryFile(dir=self._disk, prefix=".qbench-probe-"))
        block = np.random.default_rng(0).bytes(CHUNK_BYTES)
        try:
            for _ in range(size // CHUNK_BYTES):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{self._disk}: cannot write a file of {size} bytes: {error.strerror}") from error
        return Path(file.name)


def _latency(path: Path) -> float:
    file, num_pages = DirectFile(path), path.stat().st_size // PAGE
    memory, first = reserve(PAGE)
    page, waits = memoryview(memory)[first : first + PAGE], []
    for place in np.random.default_rng(0).integers(0, max(1, num_pages), SMALL_READS) * PAGE:
        begin = time.perf_counter()
        file.read_into(page, int(place))
        waits.append(time.perf_counter() - begin)
    return median(waits)


def seconds_of(unit: Unit, product_s: Mapping[str, float]) -> float:
    """Seconds of the unit's products."""
    return sum(product_s[linear.format] * linear.size_bytes for linear in unit.linears)


def product_seconds(linears: Iterable[PlacedLinear], batch: int, held_bytes: int = WEIGHT_BYTES) -> dict[str, float]:
    """Seconds per byte of packed weight, by format, for the largest shape of each and this many tokens.

    held_bytes  of the weights that a step reads in turns: few stay in the processor's caches
    """
    largest: dict[str, PlacedLinear] = {}
    for linear in linears:
        if linear.format not in largest or linear.size_bytes > largest[linear.format].size_bytes:
            largest[linear.format] = linear
    return {name: _seconds_per_byte(linear, batch, held_bytes) for name, linear in largest.items()}


def _seconds_per_byte(linear: PlacedLinear, batch: int, held_bytes: int) -> float:
    kernels = importlib.import_module("cpu_kernels")
    rows, row_size = linear.shape
    row_bytes = linear.size_bytes / rows
    rows = min(rows, max(16, int(held_bytes / row_bytes) // 16 * 16))
    size = kernels.packed_linear_bytes(linear.format, (rows, row_size))
    count = max(1, held_bytes // size)
    memory, first = reserve(count * (size + PAGE))
    whole = np.frombuffer(memory, dtype=np.uint8)[first:]
    whole[: count * (size + PAGE)] = 1  # pages that were never written would all be one
    stride = -(-size // 64) * 64
    parts = [{"packed": whole[index * stride : index * stride + size]} for index in range(count)]
    weights = [kernels.PackedLinear(linear.format, part, (rows, row_size)) for part in parts]
    x = np.random.default_rng(0).standard_normal((batch, row_size)).astype(np.float32)
    taken: list[float] = []
    begin = time.perf_counter()
    while not taken or time.perf_counter() - begin < PRODUCT_S:
        start = time.perf_counter()
        for weight in weights:
            weight.matmul(x)
        taken.append(time.perf_counter() - start)
    return median(taken) / (count * size)
