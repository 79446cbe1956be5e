"""Memory: what this process took at most, and what a model's weights take by part."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quant.source import TensorInfo

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


def current_rss_bytes() -> int:
    return _status("VmRSS")


def peak_rss_bytes() -> int:
    """The most this process has held since it started or since `reset_peak_rss`."""
    return _status("VmHWM")


def reset_peak_rss() -> bool:
    """Start the peak anew from what is held now; False where the system does not let us (it is since start then)."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # Linux, proc(5): reset the peak resident set size
    except OSError:
        return False
    return True


def weight_statistics(tensors: Mapping[str, TensorInfo]) -> dict[str, Any]:
    """True bits per weight, all stored bits over all weights, with embedding and head also apart.

    A head that shares the embedding's bytes has no entry of its own (None).
    """
    groups: dict[str, list[TensorInfo]] = {"embedding": [], "head": [], "layers": []}
    for name, info in tensors.items():
        groups[{EMBEDDING: "embedding", HEAD: "head"}.get(name, "layers")].append(info)
    everything = [info for group in groups.values() for info in group]
    return {
        "size_bytes": sum(info.size_bytes for info in everything),
        "num_weights": sum(_num_weights(info) for info in everything),
        "bits_per_weight": _bits_per_weight(everything),
        "bits_per_weight_by_part": {part: _bits_per_weight(infos) for part, infos in groups.items()},
    }


def _bits_per_weight(infos: list[TensorInfo]) -> float | None:
    if not infos:
        return None
    return 8 * sum(info.size_bytes for info in infos) / sum(_num_weights(info) for info in infos)


def _num_weights(info: TensorInfo) -> int:
    return int(np.prod(info.shape, dtype=np.int64))


def _status(field: str) -> int:
    """raises RuntimeError where there is no /proc (the peak of a process is not known elsewhere)."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024  # "VmHWM:   123456 kB"
    except OSError as error:
        raise RuntimeError(f"memory is read from /proc/self/status, which this system lacks: {error}") from error
    raise RuntimeError(f"/proc/self/status has no {field}")
