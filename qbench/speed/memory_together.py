"""Whether several KV caches of one loaded model fit into memory together."""

from collections.abc import Sequence
from typing import Any

import torch

from qbench.measure.host.memory import free_memory_bytes
from qbench.run.cache_spec import FULL
from qbench.run.choices import CPU, CUDA
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime.memory import MemoryPredictor
from qbench.speed.case_memory import device_parts_of_case, parts_of_case
from quant.source import Source


def why_not_together(source: Source, model: Any, asked: Sequence[tuple[RunOptions, SpeedWork]]) -> str | None:
    """One clause if the caches need more memory than is free; None if they fit.

    model    loaded from the source
    asked    options and case of each cache
    """
    sizes = [_cache_and_workspace(source, model, *each) for each in asked]
    needed = sum(kept for kept, _ in sizes) + max(workspace for _, workspace in sizes)
    device = asked[0][0].device
    free = torch.cuda.mem_get_info()[0] if device == CUDA else free_memory_bytes()
    if needed <= free:
        return None
    return f"the caches of all {len(asked)} cases need {needed} bytes together, and {free} bytes are free"


def _cache_and_workspace(source: Source, model: Any, options: RunOptions, case: SpeedWork) -> tuple[int, int]:
    """Bytes that the cache holds, and those of a forward pass."""
    if options.device == CPU:
        predictor = MemoryPredictor(source, impl=model.impl, spec=options.cache_spec, attention=options.attention)
        parts = parts_of_case(predictor, case)
        kept, workspace = parts.kv_bytes, parts.workspace_bytes
    else:
        found = device_parts_of_case(model.cached_by(options.cache_spec), source, case)
        kept, workspace = found["kv_bytes"], found["workspace_bytes"]
    kept = options.cache_spec.ram_bytes(kept)
    # A cache that evicts also keeps a copy of the tokens to which each repetition goes back.
    return (kept if options.policy == FULL else 2 * kept), workspace
