"""HiddenStates: what goes from one decoder layer to the next, in a file."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

ITEM_BYTES = 4


class HiddenStates:
    """[S, T, H] float32 at `path`, read and written some windows at a time.

    Read and written instead of mapped: mapped pages count as memory of the process, and these may be gigabytes.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int]) -> None:
        self.path = path
        self.shape = shape
        self._window_bytes = ITEM_BYTES * shape[1] * shape[2]

    def create(self) -> None:
        with self.path.open("wb") as file:
            file.truncate(self._window_bytes * self.shape[0])

    def read(self, windows: slice) -> Tensor:
        """-> [n, T, H] float32, a fresh tensor"""
        num_windows = windows.stop - windows.start
        count, offset = num_windows * self.shape[1] * self.shape[2], self._window_bytes * windows.start
        data = np.fromfile(self.path, dtype=np.float32, count=count, offset=offset)
        # Copied to where torch aligns its memory: a product's last bits may depend on the alignment.
        return torch.from_numpy(data).view(num_windows, *self.shape[1:]).clone()

    def write(self, windows: slice, x: Tensor) -> None:
        """x [n, T, H] float32"""
        descriptor = os.open(self.path, os.O_WRONLY)
        try:
            data = memoryview(x.contiguous().numpy()).cast("B")
            offset = self._window_bytes * windows.start
            while data:  # a system may write less than it was given
                written = os.pwrite(descriptor, data, offset)
                data, offset = data[written:], offset + written
        finally:
            os.close(descriptor)
