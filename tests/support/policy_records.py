"""Sample records of KV-cache policies, with the KLD of each window."""

import numpy as np
from support.sample_records import make_record

WINDOWS, TOKENS = 12, 1023
FULL_BYTES = 2_000_000


def policy_record(
    policy: str,
    kld: float,
    held: int,
    speed: float,
    *,
    kv_format: str = "kv-f16",
    model: str = "ref:llama",
    recipe: str = "bf16",
    **metrics,
) -> dict:
    """A case of a policy; `kld` is its mean, and every window differs from it by up to 10 %."""
    rng = np.random.default_rng(held)
    klds = kld * (1 + 0.1 * np.linspace(-1, 1, WINDOWS)) * TOKENS
    blocks = {"unit": "window", "tokens": [TOKENS] * WINDOWS, "kld": rng.permutation(klds).tolist()}
    blocks |= {"nll": [1.5 * TOKENS] * WINDOWS, "same_top": [0.9 * TOKENS] * WINDOWS}
    figures = {"kv_bytes_held": held, "blocks": blocks, "reference": model}
    figures |= {} if policy == "full" else {"kv_peak_bytes": held + 10_000}
    samples = (speed * (1 + 0.01 * np.linspace(-1, 1, 7))).tolist()
    figures |= {"samples": {"tg_tok_s": samples}, "interval": {"tg_tok_s": [0.99 * speed, 1.01 * speed]}}
    figures |= {"kld": {"mean": kld}, "kld_interval": [0.9 * kld, 1.1 * kld], "tg_tok_s": speed}
    record = make_record(recipe, model=model, **(figures | metrics))
    record["case"] |= {"kv_format": kv_format, "policy": policy, "bench": {"pp": 64, "tg": 32, "depth": 896}}
    return record | {"key": f"{model} {recipe} {kv_format} {policy}"}


def policy_sweep(kv_format: str = "kv-f16", **changes) -> list[dict]:
    """The full cache and two policies at two budgets; h2o is better than recent at both."""
    rows = [("full", 1e-6, FULL_BYTES, 400.0)]
    rows += [("recent:budget=64", 0.30, 160_000, 180.0), ("recent:budget=256", 0.09, 560_000, 170.0)]
    rows += [("h2o:budget=64", 0.25, 160_000, 190.0), ("h2o:budget=256", 0.06, 560_000, 160.0)]
    return [policy_record(*row, kv_format=kv_format, **changes) for row in rows]
