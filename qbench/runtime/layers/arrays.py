"""NumPy arrays as tensors."""

import numpy as np
import torch
from torch import Tensor


def as_tensor(array: np.ndarray) -> Tensor:
    """The array's memory as a tensor; a read-only array (a mapped file) is copied, as torch asks."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
