"""`resident_model`: a model whose weights stay in memory, run by the code for weights that come and go.

This code looks at the process before each forward pass, asks for the head and for each chosen expert, and calls experts
from Python. With small layers all of this takes longer than the products. Here it asks for units of one page each, so
that no weight is in memory twice.
"""

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.layers.moe import ExpertFeedForward
from qbench.runtime.model import Model
from qbench.runtime.offload.budget import Budget
from qbench.runtime.offload.direct_file import DirectFile
from qbench.runtime.offload.experts import StreamedExperts
from qbench.runtime.offload.load import OffloadedModel, expert_store
from qbench.runtime.offload.region import Region
from qbench.runtime.offload.streamer import Streamer
from qbench.runtime.offload.units import PAGE, streamable_units
from qbench.runtime.offload.weights import StreamedWeights
from quant.source import Source

IMPL = "auto"
NO_LIMIT = 1 << 50  # bytes; more than a process has


def resident_model(source: Source, options: RunOptions, path: Path, before: Callable[[], None]) -> OffloadedModel:
    """path: of a file to read the pages from; before: called before each layer"""
    made = load_model(source, options)
    assert isinstance(made, Model)
    units = [replace(unit, size_bytes=PAGE) for unit in streamable_units(source, made.config, IMPL)]
    region = Region(units)
    streamer = Streamer(DirectFile(path), region, units, dict.fromkeys((unit.name for unit in units), 0), {})
    experts = expert_store(streamer, region, units, options.expert_placement, made.config)
    for layer, block in enumerate(made.blocks):
        block.before = before
        if experts is not None and isinstance(block.feed_forward, ExpertFeedForward):
            block.feed_forward = StreamedExperts(block.feed_forward, layer, experts)
    budget = Budget(source, replace(options, memory_bytes=NO_LIMIT), IMPL)
    model = OffloadedModel.of(made, StreamedWeights(streamer, region, units, budget, experts))
    weakref.finalize(model, streamer.close)
    return model
