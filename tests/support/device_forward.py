"""Code that the tests of a device model run, in the process that has the device."""

from typing import Any

import torch

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.device import model as device_model
from quant.source import Source

LENGTHS = (5, 2)  # of the prompts; a query of the longer sees past a window of 4
NUM_STEPS = 3  # the second is captured, the third replayed


def few_forwards(source: Source, device: str, attention: str | None = None) -> dict[str, torch.Tensor]:
    """Logits of a varlen prompt, and of a step after it.

    device     "cpu": the reference
    attention  on a device
    """
    model, tokens = _open(source, device, attention)
    return {"prompt": _prompt(model, tokens, cache := model.new_cache(2, 8)), "step": _step(model, tokens, cache)}


def passes(source: Source, device: str, attention: str | None = None) -> dict[str, torch.Tensor]:
    """Those and more steps, a text without a cache, and the last of one that is begun again."""
    model, tokens = _open(source, device, attention)
    cache = model.new_cache(2, capacity=4)  # grows
    found = {"prompt": _prompt(model, tokens, cache)}
    found |= {f"step {number}": _step(model, tokens, cache) for number in range(NUM_STEPS)}
    cache.truncate(2)
    found["again"] = model(tokens[:, :2], cache, last_only=True)
    return found | {"alone": model(tokens[:1]), "seq_lens": torch.from_numpy(cache.seq_lens)}


def _open(source: Source, device: str, attention: str | None) -> tuple[Any, torch.Tensor]:
    device_model.EAGER_STEPS = 1
    if device == "cpu":
        model = load_model(source, impl="reference")
    else:
        model = load_model(source, RunOptions(device=device, attention=attention))
    generator = torch.Generator().manual_seed(0)
    return model, torch.randint(0, model.config.vocab_size, (2, max(LENGTHS)), generator=generator)


def _prompt(model: Any, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
    """[sum of LENGTHS, V]"""
    logits = model(tokens, cache, num_valid=LENGTHS)
    return torch.cat([row[:seq_len] for row, seq_len in zip(logits, LENGTHS, strict=True)])


def _step(model: Any, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
    return model((tokens[:, :1] + cache.seq_len) % model.config.vocab_size, cache, last_only=True)


def facts(source: Source, device: str, attention: str | None = None) -> tuple[dict[str, str], dict[str, str], int]:
    """(impls, kernels, weight_bytes)"""
    model = load_model(source, RunOptions(device=device, attention=attention))
    return model.impls, model.kernels, model.weight_bytes
