"""The tiers of this machine as a decode step meets them: the disk, the memory, and products of packed weights."""

import importlib
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar

import numpy as np

from qbench.plan.offload.costs import DiskRates
from qbench.runtime.offload.direct_file import DirectFile
from qbench.runtime.offload.region import reserve
from qbench.runtime.offload.streamer import CHUNK_BYTES, READERS
from qbench.runtime.offload.units import PAGE, PlacedLinear
from quant.atomic import check_target
from quant.errors import InputError
from quant.json_data import JsonData

PROBE_BYTES = 512 << 20  # of a file to read, before the model has its own
ROUNDS = 3
WEIGHT_BYTES = 128 << 20  # of the weights that products are timed with: more than a last-level cache
PRODUCT_S = 0.3  # of each timing
SMALL_READS = 64


@dataclass(frozen=True, slots=True)
class Tiers(JsonData):
    """Measured rates.

    disk         processor seconds of its reads are of one core
    ram_bytes_s  reads by all threads
    product_s    format -> seconds per byte of packed weight of a product with one batch, by all threads
    """

    json_flat: ClassVar[tuple[str, ...]] = ("disk",)

    disk: DiskRates
    ram_bytes_s: float
    product_s: Mapping[str, float]


def measure_rates(disk: Path, threads: int) -> tuple[DiskRates, float]:
    """`Tiers.disk` and `Tiers.ram_bytes_s`. disk: a file to read, or a folder that a file may be written to"""
    bytes_s, cpu_s, latency_s = measure_disk(disk)
    ram_bytes_s = importlib.import_module("cpu_kernels").measure_read_bandwidth(threads, PRODUCT_S)
    return DiskRates(bytes_s, latency_s, cpu_s), ram_bytes_s


def measure_disk(disk: Path) -> tuple[float, float, float]:
    """Bytes per second, processor seconds per byte, and seconds of a small read; medians of several rounds.

    raises   InputError for a folder that cannot be written to, and a disk without room for the probe
    """
    if disk.is_file():
        return _read_rates(disk)
    check_target(disk / "probe", lambda _: False, PROBE_BYTES)
    with tempfile.NamedTemporaryFile(dir=disk, prefix=".qbench-probe-") as file:
        block = np.random.default_rng(0).bytes(CHUNK_BYTES)
        try:
            for _ in range(PROBE_BYTES // CHUNK_BYTES):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{disk}: cannot write a file of {PROBE_BYTES} bytes: {error.strerror}") from error
        return _read_rates(Path(file.name))


def _read_rates(path: Path) -> tuple[float, float, float]:
    file, size = DirectFile(path), path.stat().st_size
    most = min(size // PAGE * PAGE, 2 * PROBE_BYTES)
    spans = [(start, min(CHUNK_BYTES, most - start)) for start in range(0, most, CHUNK_BYTES)]
    rates, cpu = [], []
    for _ in range(ROUNDS):
        before = time.process_time()
        rates.append(file.bandwidth(spans, READERS))
        cpu.append((time.process_time() - before) / most)
    places = np.random.default_rng(0).integers(0, max(1, most // PAGE), SMALL_READS) * PAGE
    memory, first = reserve(PAGE)
    page, waits = memoryview(memory)[first : first + PAGE], []
    for place in places.tolist():
        begin = time.perf_counter()
        file.read_into(page, place)
        waits.append(time.perf_counter() - begin)
    return median(rates), median(cpu), median(waits)


def product_seconds(linears: Iterable[PlacedLinear], batch: int) -> dict[str, float]:
    """Seconds per byte of packed weight, by format, for the largest shape of each and this many tokens."""
    largest: dict[str, PlacedLinear] = {}
    for linear in linears:
        if linear.format not in largest or linear.size_bytes > largest[linear.format].size_bytes:
            largest[linear.format] = linear
    return {name: _seconds_per_byte(linear, batch) for name, linear in largest.items()}


def _seconds_per_byte(linear: PlacedLinear, batch: int) -> float:
    kernels = importlib.import_module("cpu_kernels")
    rows, row_size = linear.shape
    row_bytes = linear.size_bytes / rows
    rows = min(rows, max(16, int(WEIGHT_BYTES / row_bytes) // 16 * 16))
    size = kernels.packed_linear_bytes(linear.format, (rows, row_size))
    count = max(1, WEIGHT_BYTES // size)
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
