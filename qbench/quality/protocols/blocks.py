"""Sums by block of text, kept in a record so that two rows of one protocol can be compared pairwise."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from qbench.quality.protocols.plan import Plan


def blocks_of(plan: Plan, columns: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """{unit, tokens: [per block], column: [its sum over each block's tokens]}, blocks in the order of the text.

    columns   name -> [N] float64, one value a scored token: `nll`, and with a reference `kld` and `same_top`
    returns   also `units`, the words or bytes of each block, where the protocol counts those; None where a value is
              not finite: such a row has no statistic that could be paired
    """
    if not all(np.isfinite(values).all() for values in columns.values()):
        return None
    sums = {name: plan.block_sums(values).tolist() for name, values in columns.items()}
    units = {} if plan.units is None else {"units": plan.units.tolist()}
    return {"unit": plan.block_unit, "tokens": plan.block_sizes.tolist(), **units, **sums}
