"""Sums by block of text, kept in a record so that two rows of one protocol can be compared pairwise."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def block_sums(unit: str, sizes: np.ndarray, columns: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """{unit, tokens: [per block], column: [its sum over each block's tokens]}, blocks in the order of the text.

    unit      "window" or "document"
    sizes     [B] scored tokens of each block
    columns   name -> [N] float64, N = sizes.sum(): `nll`, and with a reference `kld` and `same_top`
    returns   None where a value is not finite: such a row has no statistic that could be paired
    """
    if not all(np.isfinite(values).all() for values in columns.values()):
        return None
    block_of = np.repeat(np.arange(len(sizes)), sizes)  # [N]
    sums = {name: np.bincount(block_of, values, len(sizes)).tolist() for name, values in columns.items()}
    return {"unit": unit, "tokens": np.asarray(sizes).tolist(), **sums}
