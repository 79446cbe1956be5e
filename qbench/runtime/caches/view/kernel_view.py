"""`KernelView` and `LayerView`: the stores and slots of a cache that fused calls of cpu_kernels work on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


def nothing_to_settle() -> None:
    """For caches that keep every token."""


@dataclass(frozen=True, slots=True)
class SinkAngles:
    """How queries meet the first tokens, and how all others, if these have other angles.

    num_sinks  the first tokens, which every query sees
    near       cos, sin [T, D] float32 of new keys, and of queries for keys in the window
    far        cos, sin [T, D] float32 of queries for keys of sinks
    """

    num_sinks: int
    near: tuple[np.ndarray, np.ndarray]
    far: tuple[np.ndarray, np.ndarray]

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for a fused call of cpu_kernels."""
        cos, sin = self.far
        return {"sinks": self.num_sinks, "sink_cos": cos, "sink_sin": sin}


@dataclass(frozen=True, slots=True)
class KernelView:
    """All layers of a cache whose keys and values are in stores.

    stores       cpu_kernels.KVStore of each layer, or its rows of latents, with room for the new tokens
    block_table  [B, pages] int32: pages of each sequence, or one such table per layer; of latents, [M, pages] of each
                 new token
    ends         [B] int64, or [layers, B]: slots in use with the new tokens; of latents, [M] with each of them
    slots        [layers, B, G] int64: slots that the only new token of each sequence takes; None: the last ones
    mass         [B, G, S] float32 per layer, which the calls fill with attention weights; None: they need not
    settle       to be called when all layers have run
    sinks        angles that replace those of the tokens' positions; None: there are no sinks
    choices      per layer the summaries by which the only new token chooses blocks, as `run_layers` takes them
    on_choice    called with the layer and its chosen blocks [A, n] if pages of them are not in the block table
    chosen       per layer the blocks that were chosen [A, n] int64, which the call fills; None: it need not
    tier         cpu_kernels.ChosenBlocks that brings them; on_choice is called if it cannot; or None
    smoothing    per layer the share and the scores of the last choice, as `run_layers` takes them; None: no smoothing
    """

    stores: list[Any]
    block_table: np.ndarray | list[np.ndarray]
    ends: np.ndarray
    slots: np.ndarray | None = None
    mass: list[np.ndarray] | None = None
    settle: Callable[[], None] = nothing_to_settle
    sinks: SinkAngles | None = None
    choices: list[tuple[Any, ...] | None] | None = None
    on_choice: Callable[[int, np.ndarray], None] | None = None
    chosen: list[np.ndarray] | None = None
    smoothing: list[tuple[Any, ...] | None] | None = None
    tier: Any = None


@dataclass(frozen=True, slots=True)
class LayerView:
    """One layer of a cache whose keys and values are in a store.

    store, block_table, ends, settle, sinks   as in `KernelView`, of this layer
    slots          [B, G] int64
    mass           [B, G, S] float32
    mass_queries   the last so many new queries of each sequence count in mass; 0: all
    """

    store: Any
    block_table: np.ndarray
    ends: np.ndarray
    slots: np.ndarray | None = None
    mass: np.ndarray | None = None
    mass_queries: int = 0
    settle: Callable[[], None] = nothing_to_settle
    sinks: SinkAngles | None = None
