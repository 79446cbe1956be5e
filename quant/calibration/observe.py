"""Statistics of the inputs of a decoder layer's linears, batch after batch."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from quant.calibration.gram import AddGram, add_gram_fp32, mirror
from quant.stats import InputStats, KVStats, LayerStats, Names, Needs

SAMPLE_ROWS = 512  # rows of each input kept where a method wants some, over the whole text


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of an input that were seen together, and their sums: the part that batches can do side by side."""

    x: Tensor  # [n, K] float32
    absmax: Tensor  # [K] float32
    sum_squares: Tensor  # [K] float32


class Recorder:
    """Observer of one batch: holds the inputs until they are summed."""

    def __init__(self) -> None:
        self.seen: dict[Names, list[_Rows]] = {}
        self.kv_absmax: tuple[np.ndarray, np.ndarray] | None = None

    def inputs(self, names: Sequence[str], x: Tensor) -> None:
        x = x.detach().reshape(-1, x.shape[-1])
        absmax = x.abs().amax(0) if len(x) else x.new_zeros(x.shape[1])
        self.seen.setdefault(tuple(names), []).append(_Rows(x, absmax, x.square().sum(0)))

    @property
    def is_finite(self) -> bool:
        return all(bool(rows.absmax.isfinite().all()) for seen in self.seen.values() for rows in seen)

    def keys_values(self, layer: int, k: Tensor, v: Tensor) -> None:
        self.kv_absmax = (k.abs().amax(dim=(0, 2)).numpy(), v.abs().amax(dim=(0, 2)).numpy())  # [B, G, T, D] -> [G, D]


@dataclass(slots=True)
class _Sums:
    """Running sums of one input; `hessian` holds the upper triangle until it is whole."""

    absmax: Tensor  # [K] float32
    sum_squares: Tensor  # [K] float64
    hessian: Tensor | None  # [K, K] float32
    num_tokens: int = 0
    sample: list[Tensor] = field(default_factory=list)


class Collector:
    """Statistics of all inputs of one decoder layer.

    needs         of the weights of one input: which statistics are wanted besides absmax and sum_squares
    num_batches   that will be added, over which the sample is spread
    add_gram      how Hessians are summed
    """

    def __init__(self, needs: Needs, num_batches: int, add_gram: AddGram = add_gram_fp32) -> None:
        self._needs = needs
        self._add_gram = add_gram
        self._rows_per_batch = -(-SAMPLE_ROWS // num_batches)
        self._sums: dict[Names, _Sums] = {}
        self._kv: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, recorders: Sequence[Recorder], pool: Executor) -> None:
        """Sums the batches in the order given."""
        for names in sorted({names for recorder in recorders for names in recorder.seen}):
            batches = [rows for recorder in recorders for rows in recorder.seen.get(names, ())]
            sums = self._sums.setdefault(names, self._new(names, batches[0].x.shape[1]))
            for rows in batches:
                self._add_rows(names, sums, rows)
            if sums.hessian is not None:
                self._add_gram(sums.hessian, [rows.x for rows in batches], pool)
        for recorder in recorders:
            if recorder.kv_absmax is not None:
                self._kv = recorder.kv_absmax if self._kv is None else _largest(self._kv, recorder.kv_absmax)

    @property
    def num_tokens(self) -> dict[str, int]:
        """Name of a weight -> rows of its input."""
        return {name: sums.num_tokens for names, sums in self._sums.items() for name in names}

    def stats(self, extra_tokens: Mapping[int, int] | None = None) -> LayerStats:
        """extra_tokens: for the record, see LayerStats"""
        inputs: dict[str, InputStats] = {}
        for names, sums in sorted(self._sums.items()):  # not as first met: that hangs on how batches were added
            inputs |= dict.fromkeys(names, _finished(sums))
        return LayerStats(inputs, None if self._kv is None else KVStats(*self._kv), extra_tokens or {})

    def _new(self, names: Names, row_size: int) -> _Sums:
        wants_hessian = "hessian" in self._needs(names)
        return _Sums(
            absmax=torch.zeros(row_size),
            sum_squares=torch.zeros(row_size, dtype=torch.float64),
            hessian=torch.zeros(row_size, row_size) if wants_hessian else None,
        )

    def _add_rows(self, names: Names, sums: _Sums, rows: _Rows) -> None:
        sums.num_tokens += len(rows.x)
        sums.absmax = torch.maximum(sums.absmax, rows.absmax)
        sums.sum_squares += rows.sum_squares
        if "sample" in self._needs(names) and len(rows.x):
            num_rows = min(len(rows.x), self._rows_per_batch)
            sums.sample.append(rows.x[torch.arange(num_rows) * len(rows.x) // num_rows].clone())


def _finished(sums: _Sums) -> InputStats:
    hessian = sums.hessian
    if hessian is not None:
        mirror(hessian)
    return InputStats(
        num_tokens=sums.num_tokens,
        absmax=sums.absmax.numpy(),
        sum_squares=sums.sum_squares.float().numpy(),
        hessian=None if hessian is None else hessian.numpy(),
        sample=torch.cat(sums.sample)[:SAMPLE_ROWS].numpy() if sums.sample else None,
    )


def _largest(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.maximum(one[0], other[0]), np.maximum(one[1], other[1])
