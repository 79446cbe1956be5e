"""Records with the sums by block of a text that some models predict better than others."""

from typing import Any

import numpy as np
from support.blocks import blocks
from support.sample_records import make_record

WINDOWS, TOKENS = 24, 500


def measured_record(recipe: str, loss: float = 0.0, kld: float = 0.01, seed: int = 0, **metrics: Any) -> dict[str, Any]:
    """One row of a model that loses `loss` nats a token; `metrics` replace the made-up ones."""
    rng = np.random.default_rng(seed)
    tokens = np.full(WINDOWS, TOKENS)
    text = np.random.default_rng(99).normal(1.8, 0.3, WINDOWS)  # the same for all
    sums = {
        "nll": tokens * (text + loss + rng.normal(0, 1e-4, WINDOWS)),
        "kld": tokens * kld * rng.lognormal(0, 0.2, WINDOWS),
        "same_top": tokens * np.clip(0.95 - 10 * loss + rng.normal(0, 0.003, WINDOWS), 0, 1),
    }
    mean = {name: float(values.sum() / tokens.sum()) for name, values in sums.items()}
    quality = {"perplexity": float(np.exp(mean["nll"])), "kld": {"mean": mean["kld"]}, "same_top": mean["same_top"]}
    samples = {"pp_tok_s": [], "tg_tok_s": list(400 * np.exp(rng.normal(0, 0.01, 8)))}
    about = {"reference": "ref:llama", "blocks": blocks(tokens=tokens, **sums), "samples": samples}
    return make_record(recipe, **(quality | about | metrics))
