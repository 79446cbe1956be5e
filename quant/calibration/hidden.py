"""HiddenStates: the output of one decoder layer as the input of the next, in a file."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

ITEM_BYTES = 4


class HiddenStates:
    """[S, T, H] at `path`, read and written some windows at a time; float32, or rounded to bfloat16.

    Read and written instead of mapped: mapped pages count as memory of the process, and these may be gigabytes.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int], dtype: torch.dtype = torch.float32) -> None:
        self.path = path
        self.shape = shape
        self.dtype = dtype
        self._window_bytes = dtype.itemsize * shape[1] * shape[2]

    def create(self) -> None:
        with self.path.open("wb") as file:
            file.truncate(self._window_bytes * self.shape[0])

    def create_once(self) -> None:
        """As `create`, if there is no file: pages written over are cheaper than new ones."""
        if not self.path.exists() or self.path.stat().st_size != self._window_bytes * self.shape[0]:
            self.create()

    def read(self, windows: slice) -> Tensor:
        """-> [n, T, H] float32, a fresh tensor"""
        num_windows = windows.stop - windows.start
        count, offset = num_windows * self.shape[1] * self.shape[2], self._window_bytes * windows.start
        data = np.fromfile(self.path, dtype=np.int8, count=count * self.dtype.itemsize, offset=offset)
        # Copied to where torch aligns its memory: a product's last bits may depend on the alignment.
        return torch.from_numpy(data).view(self.dtype).view(num_windows, *self.shape[1:]).to(torch.float32, copy=True)

    def write(self, windows: slice, x: Tensor) -> None:
        """x [n, T, H] float32"""
        descriptor = os.open(self.path, os.O_WRONLY)
        try:
            data = x.to(self.dtype).contiguous().view(torch.int8).numpy().data.cast("B")
            offset = self._window_bytes * windows.start
            while data:  # a system may write less than it was given
                written = os.pwrite(descriptor, data, offset)
                data, offset = data[written:], offset + written
        finally:
            os.close(descriptor)
