"""Whether sequences fit into this machine's memory, asked before anything of their size is made."""

import sys
from bisect import bisect_left

from qbench.measure.host.memory import usable_memory_bytes
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime.device.memory import predict_device_memory
from qbench.runtime.device.model import DeviceModel
from qbench.runtime.memory import MemoryParts, MemoryPredictor
from quant.errors import InputError
from quant.source import Source

TOKEN_BYTES = 16  # one pointer in a list of token ids, and one id in its tensor


def check_case_memory(source: Source, options: RunOptions, case: SpeedWork) -> None:
    """As `check_batch_memory`."""
    for num_tokens, steps in case.ends:
        check_batch_memory(source, options, case.batch, num_tokens, steps)


def parts_of_case(predictor: MemoryPredictor, case: SpeedWork) -> MemoryParts:
    """Bytes at the end of the phase that takes the most."""
    ends = [predictor.at(num_tokens, case.batch, steps=steps) for num_tokens, steps in case.ends]
    return max(ends, key=lambda parts: parts.total_bytes)


def device_parts_of_case(model: DeviceModel, source: Source, case: SpeedWork) -> dict[str, int]:
    """The same of a model on a device."""
    ends = [predict_device_memory(model, source, num_tokens, case.batch, steps) for num_tokens, steps in case.ends]
    return max(ends, key=lambda parts: parts["total_bytes"])


def check_batch_memory(source: Source, options: RunOptions, batch: int, num_tokens: int, steps: int = 0) -> None:
    """Refuse a batch that needs more memory than the machine has; weights are left out, as they may stay on disk.

    num_tokens  of one sequence
    steps       the last tokens of it, which come one at a time
    raises      InputError that names the largest batch that fits
    """
    predictor = MemoryPredictor(source, spec=options.cache_spec, attention=options.attention)

    def needed(count: int) -> int:
        parts = predictor.at(num_tokens, count, steps=steps)
        kv_bytes = 0 if options.kv_ram is not None else parts.kv_bytes
        return kv_bytes + parts.workspace_bytes + count * num_tokens * TOKEN_BYTES

    limit = usable_memory_bytes()
    if needed(batch) <= limit:
        return
    largest = bisect_left(range(1, min(batch, sys.maxsize - 1) + 1), True, key=lambda count: needed(count) > limit)
    advice = f"the largest batch that fits is {largest}" if largest else "ask for fewer tokens"
    raise InputError(
        f"batch {batch} of {num_tokens} tokens needs {needed(batch)} bytes for keys, values and activations; "
        f"this machine has {limit} bytes of memory; {advice}"
    )
