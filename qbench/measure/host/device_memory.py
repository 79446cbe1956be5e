"""Memory that tensors hold on a GPU, at most."""

import torch

from qbench.options.choices import CUDA


def reset_peak_device(device: str) -> None:
    """Start the peak again from the bytes that are held now."""
    if device == CUDA:
        torch.cuda.reset_peak_memory_stats()


def peak_device_bytes(device: str) -> int | None:
    """The peak since then; None without a GPU."""
    return torch.cuda.max_memory_allocated() if device == CUDA else None
