"""As many records as a store may come to hold: noisy figures, eight recipes of each case side by side."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
from support.measured_records import measured_sweep


def many_records(rows: int) -> Iterator[str]:
    """Lines of records, about 3 kB each."""
    rng, sweep = np.random.default_rng(3), measured_sweep()
    keys = rng.integers(0, 2**63, rows)
    for i, noise in enumerate(rng.lognormal(0, 0.3, (rows, 4))):
        record = sweep[i % len(sweep)]
        case = record["case"] | {"model": f"model-{i // 800}", "seed": i // len(sweep)}
        metrics = record["metrics"] | _figures(record["metrics"], *noise.tolist())
        time = datetime(2026, 1, 1) + timedelta(seconds=7 * i)
        own = {"key": f"{keys[i]:016x}", "case": case, "metrics": metrics, "time": time.isoformat()}
        yield json.dumps(record | own) + "\n"


def _figures(metrics: dict, quality: float, divergence: float, prefill: float, decode: float) -> dict:
    perplexity, kld = quality * metrics["perplexity"], {k: divergence * v for k, v in metrics["kld"].items()}
    speeds = {"pp_tok_s": prefill * metrics["pp_tok_s"], "tg_tok_s": decode * metrics["tg_tok_s"]}
    return speeds | {
        "perplexity": perplexity,
        "perplexity_interval": [0.98 * perplexity, 1.02 * perplexity],
        "kld": kld,
        "kld_interval": [0.9 * kld["mean"], 1.1 * kld["mean"]],
        "spread": {name: {"min": 0.96 * speed, "max": 1.02 * speed} for name, speed in speeds.items()},
    }
