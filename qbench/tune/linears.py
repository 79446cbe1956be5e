"""Switch points of products: up to how many tokens direct, from how many on K-quants rounded again, or bfloat16."""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from qbench.measure.tuning import AMX, NEVER, LinearSwitch
from qbench.tune.turns import median_seconds
from quant.formats import get_format
from quant.json_data import JsonData
from quant.present import present

DIRECT, TILE, ROUNDED, BF16 = "direct", "tile", "int8x256", "bf16"
TOKENS = (2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96)  # of prompts and batches around the shipped points
FROM_TOKENS = (32, 48, 64, 96, 128, 256)  # fewer were never faster, and rounding costs accuracy
BF16_TOKENS = (16, 24, 32, 40, 48, 64, 96, 128)  # from two thirds of the speed of AVX-512 VNNI to 1.5 times as fast
ROWS, ROW_SIZE = 1024, 2048
VNNI = "avx512_vnni"  # multiplies few tokens on a processor with AMX
COPIES = 8  # in turns, 9 MB of 4-bit codes: a model's weights do not come from the L2 either
LEAST_GAIN = 1.01  # below it the shipped point stays: a table of noise helps nobody
SEED = 20

Times = Mapping[int, Mapping[str, float]]  # tokens -> path -> seconds


@dataclass(frozen=True, slots=True)
class LinearGain(JsonData):
    """The switch points of an op before and after, and the gain that a second measurement found if they differ.

    tokens   numbers of tokens whose path changes
    gain     geometric mean over these of the old path's time over the new one's; None: nothing changes
    """

    op: str
    shipped: LinearSwitch
    measured: LinearSwitch
    tokens: list[int]
    gain: float | None


class Product:
    """One weight of a format, multiplied by any path."""

    def __init__(self, name: str) -> None:
        kernels = importlib.import_module("cpu_kernels")
        rng = np.random.default_rng(SEED)
        stored = get_format(name).quantize(rng.standard_normal((ROWS, ROW_SIZE)).astype(np.float32))
        self.op = f"linear_{name}"
        parts = stored.parts | stored.shared
        self.copies: list[Any] = [kernels.PackedLinear(stored.format, parts, stored.shape) for _ in range(COPIES)]
        self.next_copy = cycle(self.copies)
        self.x = rng.standard_normal((max(*TOKENS, *FROM_TOKENS), ROW_SIZE)).astype(np.float32)

    def path(self, num_tokens: int, isa: str | None = None) -> str:
        """The path that a call takes now; isa: under this instruction set, None: under the chosen one"""
        return self.copies[0].choice(num_tokens, isa)[1]

    def call(self, num_tokens: int, path: str) -> Callable[[], object]:
        x = self.x[:num_tokens]
        return lambda: next(self.next_copy).matmul(x, path=path)

    def times(self, tokens: Sequence[int], paths: Sequence[str]) -> Times:
        return {count: median_seconds({path: self.call(count, path) for path in paths}) for count in tokens}


def shipped_switch(product: Product) -> LinearSwitch:
    """The points by which the kernels choose now. Those of AMX are the ones of AVX-512 VNNI and `least_bf16`."""
    isa, counts = importlib.import_module("cpu_kernels").chosen_isa(product.op), range(1, max(FROM_TOKENS) + 1)
    kinds = {count: product.path(count, VNNI if isa == AMX else None) for count in counts}
    most_direct = sum(path == DIRECT for path in kinds.values())
    least_rerounded = least(ROUNDED, kinds)
    least_bf16 = least(BF16, {count: product.path(count) for count in counts}) if isa == AMX else None
    return LinearSwitch(product.op, isa, most_direct, least_rerounded, least_bf16)


def least(path: str, kinds: Mapping[int, str]) -> int:
    return min((count for count, its in kinds.items() if its == path), default=NEVER)


def best_switch(product: Product, shipped: LinearSwitch) -> LinearSwitch:
    """The points of least time, summed over all measured numbers of tokens relative to the faster path of each."""
    times = product.times(TOKENS, (DIRECT, TILE))
    most_direct = best_point(times, DIRECT, TILE, shipped.most_direct, [0, *TOKENS])
    if shipped.least_bf16 is not None:
        return best_tiles(product, replace(shipped, most_direct=most_direct))
    if shipped.least_rerounded == NEVER:  # the format has no rounding, or its results would be too far off
        return replace(shipped, most_direct=most_direct)
    stored = product.times(FROM_TOKENS, (TILE, ROUNDED))
    # "direct" up to the point before which nothing is rounded: the same search, with tile as the path of fewer tokens
    most_stored = best_point(stored, TILE, ROUNDED, shipped.least_rerounded - 1, [FROM_TOKENS[0] - 1, *FROM_TOKENS])
    later = [count for count in FROM_TOKENS if count > most_stored]
    kept = shipped.least_rerounded if most_stored == shipped.least_rerounded - 1 else None
    return replace(shipped, most_direct=most_direct, least_rerounded=kept or (min(later) if later else NEVER))


def best_tiles(product: Product, shipped: LinearSwitch) -> LinearSwitch:
    """The same with the best `least_bf16`. `least_rerounded` stays: with AMX nearly no product takes that path."""
    vector, times = replace(shipped, least_bf16=None), {}
    for count in BF16_TOKENS:
        path = path_by(vector, count)
        seconds = product.times([count], (path, BF16))[count]
        times[count] = {VNNI: seconds[path], BF16: seconds[BF16]}
    shipped_most = present(shipped.least_bf16) - 1  # the last number of tokens that AVX-512 multiplies
    most = best_point(times, VNNI, BF16, shipped_most, [BF16_TOKENS[0] - 1, *BF16_TOKENS])
    if most == shipped_most:
        return shipped
    return replace(shipped, least_bf16=min((count for count in BF16_TOKENS if count > most), default=NEVER))


def best_point(times: Times, few: str, many: str, shipped: int, points: Sequence[int]) -> int:
    """The point up to which `few` is the path; the shipped one unless another gains LEAST_GAIN."""

    def cost(point: int) -> float:
        return sum(its[few if count <= point else many] / min(its[few], its[many]) for count, its in times.items())

    best = min(points, key=cost)
    return best if cost(shipped) / cost(best) >= LEAST_GAIN else shipped


def gain_of(product: Product, shipped: LinearSwitch, measured: LinearSwitch) -> tuple[list[int], float | None]:
    """Numbers of tokens whose path changes, and the gain there, measured again."""
    differ = [
        (count, before, after)
        for count in sorted({*TOKENS, *FROM_TOKENS, *BF16_TOKENS})
        if (before := path_by(shipped, count)) != (after := path_by(measured, count))
    ]
    if not differ:
        return [], None
    logs = []
    for count, before, after in differ:
        seconds = median_seconds({path: product.call(count, path) for path in (before, after)})
        logs.append(math.log(seconds[before] / seconds[after]))
    return [count for count, _, _ in differ], math.exp(sum(logs) / len(logs))


def path_by(switch: LinearSwitch, num_tokens: int) -> str:
    if switch.least_bf16 is not None and num_tokens >= switch.least_bf16:
        return BF16
    if num_tokens >= switch.least_rerounded:
        return ROUNDED
    return DIRECT if num_tokens <= switch.most_direct else TILE


def tune_linear(name: str) -> LinearGain:
    """Measure a format. A point that does not gain in the second measurement is the shipped one."""
    product = Product(name)
    shipped = shipped_switch(product)
    measured = best_switch(product, shipped)
    tokens, gain = gain_of(product, shipped, measured)
    if gain is not None and gain < LEAST_GAIN:
        return LinearGain(product.op, shipped, shipped, [], None)
    return LinearGain(product.op, shipped, measured, tokens, gain)
