"""Memory that tensors hold on a GPU, at most."""

import torch

from qbench.devices import CUDA


def reset_peak_device(device: str) -> None:
    """Start the peak anew from what is held now."""
    if device == CUDA:
        torch.cuda.reset_peak_memory_stats()


def peak_device_bytes(device: str) -> dict[str, int]:
    """{peak_device_bytes: since then}, {} where there is no GPU's memory to tell of"""
    return {"peak_device_bytes": torch.cuda.max_memory_allocated()} if device == CUDA else {}
