"""Runs of policies on a device, for tests: they run in whichever process has the device."""

from typing import Any

import torch

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from quant.source import Source

LENGTHS, NUM_STEPS = (66, 9), 2  # of the prompts: the first takes two pages of a device


def held(source: Source, device: str, policy: str, prefill_chunk: int | None = None) -> dict[str, Any]:
    """Logits, and the tokens that each head keeps, after each forward pass; "bytes": held now, and at most.

    device         "cpu": the reference
    prefill_chunk  then there is one sequence
    """
    if device == "cpu":
        model = load_model(source, RunOptions(policy=policy, prefill_chunk=prefill_chunk), impl="reference")
    else:
        model = load_model(source, RunOptions(policy=policy, prefill_chunk=prefill_chunk, device=device))
    batch, longest = 2 if prefill_chunk is None else 1, max(LENGTHS)
    tokens = torch.randint(0, 64, (batch, longest + NUM_STEPS), generator=torch.Generator().manual_seed(0))
    cache, found = model.new_cache(batch), {}

    def forward(name: str, tokens: torch.Tensor, **how: Any) -> None:
        logits = model(tokens, cache, last_only=True, **how)
        found[name] = logits, [cache.held_positions(layer) for layer in range(model.config.num_layers)]

    forward("prompt", tokens[:, :longest], **({} if batch == 1 else {"num_valid": LENGTHS}))
    found["bytes"] = cache.size_bytes, cache.peak_bytes
    for step in range(NUM_STEPS):
        forward(f"step {step}", tokens[:, longest + step : longest + step + 1])
    forward("text behind free slots", tokens[:, :3])
    cache.mark()
    forward("marked", tokens[:, 3:4])
    cache.truncate(cache.seq_lens - 1)
    forward("back to the mark", tokens[:, 3:4])
    cache.truncate(0)
    forward("from the start", tokens[:, :2])
    return found


def logits_and_bytes(source: Source, device: str, policy: str, num_steps: int) -> tuple[dict[str, torch.Tensor], int]:
    """Logits of a prompt of 80 tokens, of steps behind it, and again after going back; bytes held after the steps."""
    how = {"impl": "reference"} if device == "cpu" else {}
    model = load_model(source, RunOptions(policy=policy, device=device), **how)
    tokens = torch.randint(0, 64, (2, 80 + num_steps), generator=torch.Generator().manual_seed(0))
    cache = model.new_cache(2)
    found = {"prompt": model(tokens[:, :80], cache)}
    cache.mark()
    found["steps"] = torch.cat([model(tokens[:, t : t + 1], cache) for t in range(80, 80 + num_steps)], 1)
    size_bytes = cache.size_bytes
    cache.truncate(80)
    found["back"] = model(tokens[:, 80:82], cache)
    return found, size_bytes


def load(source: Source, device: str, policy: str, attention: str | None = None) -> None:
    load_model(source, RunOptions(policy=policy, device=device, attention=attention))
