"""Whether sequences fit into this machine's memory, asked before anything of their size is made; parts on a device."""

import sys
from bisect import bisect_left

from qbench.measure.host.memory import usable_memory_bytes
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime.device.cache import FORWARD_TOKENS, DeviceCache
from qbench.runtime.device.model import DeviceModel
from qbench.runtime.device.policy_cache import slots_of_layers
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


def predict_device_memory(
    model: DeviceModel, source: Source, context: int, batch: int, steps: int = 0
) -> dict[str, int]:
    """Bytes by part for `batch` sequences of `context` tokens; the keys are those of `predict_memory`.

    steps            the last tokens of the context, which came one at a time
    resident_bytes   weights in the layouts of the kernels, as this model holds them
    workspace_bytes  the widest point of a layer in the longest forward pass: gate, up, their product and the residual
                     stream, and the last position's logits
    """
    config, element = model.config, model.place.dtype.itemsize
    tokens = batch * min(context, max(1, FORWARD_TOKENS // batch))
    widest = max(3 * config.ffn_size, 3 * config.q_size + 2 * config.kv_size)
    parts = {
        "resident_bytes": model.weight_bytes,
        "kv_bytes": round(batch * _kv_bytes(model, context, steps)),
        "workspace_bytes": element * (tokens * (widest + 3 * config.hidden_size) + batch * config.vocab_size),
    }
    weights = sum(info.size_bytes for info in source.tensors.values())
    return {"weights_bytes": weights, **parts, "total_bytes": sum(parts.values())}


def _kv_bytes(model: DeviceModel, context: int, steps: int) -> float:
    """Pages of one sequence."""
    per_token = DeviceCache(model.config, model.place, 1, 1, model.kv).bytes_per_token
    slots = slots_of_layers(model.cache_spec.make_policy(), model.config, per_token, context, steps)
    return sum(slots) * per_token / len(slots)
