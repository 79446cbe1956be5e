"""Sample records with raw samples and sums by block, as a sweep of schema 2 writes them."""

import numpy as np
from support.sample_records import SWEEP, make_record

WINDOWS, TOKENS = 24, 1023


def blocks_of(recipe: str, seed: int = 0) -> dict:
    """Sums by window: a hard window is hard for every recipe, and each adds its own divergence."""
    _, perplexity, kld, same_top, *_ = SWEEP[recipe]
    shared, own = np.random.default_rng(7), np.random.default_rng([seed, list(SWEEP).index(recipe)])
    hard = shared.normal(0, 0.3, WINDOWS)
    klds = kld * own.gamma(1.5, 1 / 1.5, WINDOWS)  # a long tail, as in real texts
    nll = np.log(perplexity) + hard + own.normal(0, np.sqrt(kld) / 10, WINDOWS)
    return {
        "unit": "window",
        "tokens": [TOKENS] * WINDOWS,
        "nll": (nll * TOKENS).tolist(),
        "kld": (klds * TOKENS).tolist(),
        "same_top": own.binomial(TOKENS, same_top, WINDOWS).astype(float).tolist(),
    }


def measured_record(recipe: str, **changes) -> dict:
    """A sample record with raw samples, blocks and a yes-no task."""
    *_, pp, tg = SWEEP[recipe]
    rng = np.random.default_rng(list(SWEEP).index(recipe))
    samples = {
        f"{name}_tok_s": (speed * rng.lognormal(0, 0.01, 7)).tolist() for name, speed in (("pp", pp), ("tg", tg))
    }
    correct = "".join(str(int(right)) for right in rng.random(200) < SWEEP[recipe][3] - 0.2)
    task = {"metric": "acc", "items_sha256": "5ha", "num_items": 200, "error": 0.03, "protocol_hash": "ta5c"}
    tasks = {"arithmetic": task | {"value": correct.count("1") / 200, "correct": correct}}
    return make_record(
        recipe, **{"samples": samples, "blocks": blocks_of(recipe), "tasks": tasks, "reference": "ref:llama"} | changes
    )


def measured_sweep() -> list[dict]:
    return [measured_record(recipe) for recipe in SWEEP]
