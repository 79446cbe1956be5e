"""Sums by block of text, kept in a record so that two rows of one protocol can be compared pairwise."""

from collections.abc import Mapping

import numpy as np

from qbench.measure.quality_figures import Blocks
from qbench.quality.protocols.scoring import Scoring


def blocks_of(scoring: Scoring, columns: Mapping[str, np.ndarray]) -> Blocks | None:
    """Sums of each column over each block's tokens, blocks in the order of the text.

    columns   name -> [N] float64, one value a scored token: `nll`, and with a reference `kld` and `same_top`
    returns   also `units`, the words or bytes of each block, where the protocol counts those; None where a value is
              not finite: such a row has no statistic that could be paired
    """
    if not all(np.isfinite(values).all() for values in columns.values()):
        return None
    sums = {name: scoring.block_sums(values).tolist() for name, values in columns.items()}
    units = None if scoring.units is None else scoring.units.tolist()
    return Blocks(unit=scoring.block_unit, tokens=scoring.block_sizes.tolist(), units=units, **sums)
