"""Rows as a sweep of the ci suite keeps them, made up, with the keys that a gate reads."""

import numpy as np

from qbench.measure.launch import Launch
from qbench.measure.records.migrate import SCHEMA_VERSION

MACHINE = {
    "id": "a" * 12,
    "cpu": "some cpu",
    "flags": ["avx2"],
    "features": ["avx2"],
    "cores": 2,
    "memory_gib": 24,
    "architecture": "x86_64",
}
PROTOCOL = {"name": "windows-8", "window": 8, "hash": "f" * 16}
NUM_BLOCKS, BLOCK = 24, 1023


def blocks(seed: int = 0, *, nll: float = 0.0, kld: float = 0.0, spread: float = 1e-4) -> dict:
    """Blocks of a text that differ from each other; `nll` and `kld` are added to every token, with `spread` between
    blocks.
    """
    text, noise = np.random.default_rng(7), np.random.default_rng(seed)
    own_nll, own_kld = text.uniform(0.5, 2.0, NUM_BLOCKS), text.gamma(2.0, 1e-3, NUM_BLOCKS)
    added = noise.normal(0, spread, (2, NUM_BLOCKS))
    return {
        "unit": "window",
        "tokens": [BLOCK] * NUM_BLOCKS,
        "nll": (BLOCK * (own_nll + nll + added[0])).tolist(),
        "kld": (BLOCK * (own_kld + kld + 0.1 * added[1])).tolist(),
        "same_top": [BLOCK - 3.0] * NUM_BLOCKS,
    }


def row(
    recipe: str = "q4_k_m", *, model: str = "ref:llama", machine: dict = MACHINE, of: dict | None = None, **metrics
):
    of = of or blocks()
    total = sum(of["tokens"])
    return {
        "schema_version": SCHEMA_VERSION,
        "key": recipe,
        "time": "2026-01-01T00:00:00+00:00",
        "status": "ok",
        "error": None,
        "case": {
            "model": model,
            "fingerprint": "e" * 64,
            "recipe": recipe,
            "kv_format": "f32",
            "isa": "auto",
            "device": "cpu",
            "threads": 1,
            "batch": 1,
            "bench": {"pp": 8, "tg": 4, "depth": 0},
        },
        "metrics": {
            "protocol": PROTOCOL,
            "perplexity": float(np.exp(sum(of["nll"]) / total)),
            "non_finite": 0,
            "kld": {"mean": sum(of["kld"]) / total},
            "same_top": 0.99,
            "reference": model,
            "blocks": of,
            "size_bytes": 2_219_520,
            "kv_bytes_per_token": 3072,
            "predicted_bytes": {"resident": 3_541_248},
            "artifact": f"artifacts/{recipe}/model.gguf",
        }
        | metrics,
        "machine": machine,
        "commit": "c" * 40,
        "dirty": False,
        "code": "d" * 16,
        "versions": {"qbench": "0.1.0", "torch": "2.13.0"},
    }


def floor_row(floor: float) -> dict:
    """A noise floor of the rows' model, as records keep it."""
    case = {"kind": "noise-floor", "model": "ref:llama", "fingerprint": "e" * 64}
    metrics = {"protocol": PROTOCOL, "floor": {"perplexity": floor, "kld": floor}}
    return row() | {"key": "noise", "case": case, "metrics": metrics}


def launches(
    count: int, seed: int = 0, *, slower: float = 0.0, of_launch: float = 0.01, of_round: float = 0.05, rounds=20
):
    """In turn: each launch's two processes differ by `of_launch` for as long as they live, rounds by `of_round`."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        peaks, both = (270_000_000 + rng.integers(-20, 20, 2) * 4096).tolist(), {}
        for phase, seconds in (("pp", 0.025), ("tg", 0.010)):
            bias, noise = rng.normal(0, of_launch), rng.normal(0, of_round, (2, rounds))
            sides = seconds * np.exp(noise)
            sides[1] *= np.exp(bias) * (1 + slower)
            both[phase] = sides.tolist()
        found.append(Launch(both, peaks))
    return found
