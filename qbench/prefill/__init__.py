"""Prefill patterns: one small file each; importing this package registers all of them."""

from qbench.prefill import (  # noqa: F401 - each registers its pattern
    dense,
    flexprefill,
    minference,
    segment_state,
    star,
    xattention,
)
from qbench.prefill.block_lists import BLOCK, BlockLists
from qbench.prefill.pattern import (
    PrefillPattern,
    Prompt,
    Summaries,
    parse_pattern,
    pattern,
    pattern_entries,
    pattern_names,
)

__all__ = [
    "BLOCK",
    "BlockLists",
    "PrefillPattern",
    "Prompt",
    "Summaries",
    "parse_pattern",
    "pattern",
    "pattern_entries",
    "pattern_names",
]
