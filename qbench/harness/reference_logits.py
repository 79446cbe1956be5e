"""The reference's logits kept on disk, so that a sweep of many recipes runs the reference once."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qbench.harness.protocol import Protocol
from qbench.harness.quality import Model, Progress, batch_size
from quant.atomic import atomic_file

CACHE_LIMIT_BYTES = 2 << 30  # beyond this the reference runs beside each model instead


class CachedLogits:
    """Logits read back from `path`: float32 as they were computed, so the file changes no digit."""

    def __init__(self, path: Path) -> None:
        self.logits = np.load(path, mmap_mode="r")  # [W, T, V] float32
        self.vocab_size = self.logits.shape[-1]

    def batch(self, start: int, windows: Tensor) -> Tensor:
        return torch.from_numpy(np.array(self.logits[start : start + len(windows)]))


def cache_path(folder: Path, protocol: Protocol, fingerprint: str) -> Path:
    """Where the logits of one model under one protocol lie."""
    return folder / f"reference-{fingerprint[:16]}-{protocol.hash}.npy"


def cache_bytes(protocol: Protocol, vocab_size: int) -> int:
    return 4 * protocol.num_windows * protocol.window * vocab_size


@torch.inference_mode()
def write_cache(
    path: Path, model: Model, windows: np.ndarray, vocab_size: int, progress: Progress | None = None
) -> None:
    """Run the reference over all windows and keep its logits; the file appears whole or not at all."""
    step = batch_size(windows.shape[1], vocab_size)
    with atomic_file(path) as temporary:
        with open(temporary, "wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (*windows.shape, vocab_size)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, len(windows), step):
                logits = model(torch.from_numpy(windows[start : start + step]))  # [B, T, V]
                file.write(logits.contiguous().numpy().astype("<f4", copy=False).data)
                if progress:
                    progress(min(start + step, len(windows)), len(windows), "reference")
