"""Lanes that round their inputs as one rank does, so that sums in another order flip no code.

Both codes are right on the border between them, and no formula of float32 bounds the effect of a flip: in rtn-w8a8 of
ref:llama the first flip moves 23 codes of the next product, then 93, 358, and at last 3,108. Whether there is a first
one depends on how torch orders its sums.
"""

import threading
from collections.abc import Callable

import numpy as np
import torch

from qbench.runtime.parallel.ranks import Ranks
from quant.formats import ActivationFormat, LlmInt8Format, get_format
from quant.source import Source


class PinnedRoundings:
    """Rounded inputs of a run on one rank, call by call, which runs on lanes then take for their own.

    excess   the largest of all lanes and calls so far: how much further an input is from one rank's code than from its
             lane's, over the bound for codes on borders. Above 1 the lanes round otherwise
    """

    def __init__(self, source: Source, sums_differ_by: float, monkeypatch) -> None:
        """sums_differ_by   bound for the inputs of a call in another order of sums, over the largest of them"""
        self.sums_differ_by = sums_differ_by
        self.excess = 0.0
        self._calls: list[np.ndarray] = []
        self._lane = threading.local()
        formats = {get_format(info.format) for info in source.tensors.values()}
        for fmt in {type(fmt) for fmt in formats if isinstance(fmt, ActivationFormat)}:
            monkeypatch.setattr(fmt, "fake_quantize_input", self._pinned(fmt.fake_quantize_input))

    @property
    def num_calls(self) -> int:
        """Rounded inputs of the run on one rank."""
        return len(self._calls)

    def pin(self, ranks: Ranks) -> None:
        """From now on this thread is a lane, at the start of its run."""
        self._lane.number, self._lane.calls = ranks.lane, iter(self._calls)

    def _pinned(self, round_input: Callable) -> Callable:
        def taken(fmt, x, shared):
            own = round_input(fmt, x, shared)
            if not hasattr(self._lane, "number"):
                self._calls.append(own)
                return own
            whole, num_features = next(self._lane.calls), x.shape[1]
            if num_features != whole.shape[1]:  # a lane's features, then the magnitude of all
                columns = np.arange(num_features - 1) + self._lane.number * (num_features - 1)
                whole = np.column_stack((whole[:, columns], own[:, -1]))
            further = np.abs(np.abs(whole - x) - np.abs(own - x)).max()
            self.excess = max(self.excess, float(further / self._border(fmt, x)))
            return whole

        return taken

    def _border(self, fmt: ActivationFormat, x: np.ndarray) -> float:
        """How much further another code of a call may be if sums differ by d: by d, and by d of the scale's magnitude.

        LLM.int8() rounds to float16 before: two roundings by 2**-11 join each d, and the input is off by one of its own
        from the number whose code is taken.
        """
        d, half = self.sums_differ_by, 2.0**-11 if isinstance(fmt, LlmInt8Format) else 0.0
        return (2 * (d + 2 * half) + 2 * half) * float(np.abs(x).max())


def order_of_sums(num_terms: int, num_sums: int) -> float:
    """How much the results of so many float32 sums after each other may differ by their order, over the largest."""
    return torch.finfo(torch.float32).eps / 2 * num_terms**0.5 * num_sums
