"""`KernelView`: what fused calls of cpu_kernels need to know of a cache in one forward pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


def nothing_to_settle() -> None:
    """For caches that keep every token."""


@dataclass(frozen=True, slots=True)
class KernelView:
    """All layers of a cache whose keys and values are in stores.

    stores       cpu_kernels.KVStore of each layer, with room for the new tokens
    block_table  [B, pages] int32: pages of each sequence
    ends         [B] int64, or [layers, B]: slots in use with the new tokens
    slots        [layers, B, G] int64: slots that the only new token of each sequence takes; None: the last ones
    mass         [B, G, S] float32 per layer, which the calls fill with attention weights; None: they need not
    settle       to be called when all layers have run
    """

    stores: list[Any]
    block_table: np.ndarray
    ends: np.ndarray
    slots: np.ndarray | None = None
    mass: list[np.ndarray] | None = None
    settle: Callable[[], None] = nothing_to_settle
