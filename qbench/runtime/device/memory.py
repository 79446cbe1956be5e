"""Memory that a model takes on a device, by part."""

from qbench.runtime.device.cache import FORWARD_TOKENS, DeviceCache
from qbench.runtime.device.model import DeviceModel
from qbench.runtime.device.policy_cache import slots_of_layers
from quant.source import Source


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
