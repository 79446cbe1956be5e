"""Which fused calls of cpu_kernels a model makes: counted at the module that layers take them from."""

from collections import Counter
from typing import Any

import pytest

FUSED = ("run_layers", "run_mla_layers", "attention_step", "feed_forward")


def count_fused_calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Name -> number of calls from now on, by models that are loaded from now on; PackedExperts by its class."""
    kernels = pytest.importorskip("cpu_kernels")
    calls: Counter[str] = Counter()

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*args, **options)

        return call

    for name in FUSED:
        monkeypatch.setattr(kernels, name, counted(name, getattr(kernels, name)))
    experts = kernels.PackedExperts
    monkeypatch.setattr(experts, "feed_forward", counted("PackedExperts", experts.feed_forward))
    return calls
