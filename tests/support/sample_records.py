"""Records shaped as a sweep writes them, with made-up figures in the range of real ones."""

import json
from pathlib import Path
from typing import Any

from qbench.measure.records.migrate import SCHEMA_VERSION

# recipe: bits/weight, perplexity, mean KLD, same top, pp tok/s, tg tok/s
SWEEP = {
    "bf16": (16.0, 6.131, 9.1e-6, 0.9992, 5200, 410),
    "rtn-w8": (8.03, 6.132, 6.2e-5, 0.9961, 2900, 210),
    "q8_0": (8.5, 6.131, 4.8e-5, 0.9968, 9100, 690),
    "q6_k": (6.56, 6.135, 5.1e-4, 0.9897, 2850, 208),
    "q5_k_m": (5.69, 6.149, 2.2e-3, 0.9788, 2830, 206),
    "q4_k_m": (4.89, 6.203, 8.4e-3, 0.9581, 2840, 207),
    "rtn-w4g128": (4.26, 6.452, 3.9e-2, 0.9120, 2790, 205),
    "q4_0": (4.5, 6.371, 2.7e-2, 0.9272, 2810, 209),
}


def make_record(recipe: str, *, model: str = "ref:llama", machine: str = "a1b2c3", protocol: str = "f00d", **metrics):
    """One row; `metrics` replace the made-up ones."""
    bits, perplexity, kld, same_top, pp, tg = SWEEP[recipe]
    case = {"model": model, "recipe": recipe, "fingerprint": "f" * 8, "threads": 2, "device": "cpu", "batch": 1}
    case |= {"context": 512, "isa": "auto", "bench": {"pp": 512, "tg": 64, "depth": 0}, "eval": {"max_windows": 24}}
    measured = {
        "bits_per_weight": bits,
        "size_bytes": int(bits * 4_850_000 / 8),
        "perplexity": perplexity,
        "perplexity_interval": [perplexity * 0.98, perplexity * 1.02],
        "kld": {"mean": kld, "median": kld / 3, "p90": 2 * kld, "p99": 9 * kld, "p999": 30 * kld, "max": 90 * kld},
        "kld_interval": [0.9 * kld, 1.11 * kld],
        "same_top": same_top,
        "pp_tok_s": float(pp),
        "tg_tok_s": float(tg),
        "spread": {"pp_tok_s": {"min": 0.96 * pp, "max": 1.01 * pp}, "tg_tok_s": {"min": 0.95 * tg, "max": 1.02 * tg}},
        "roofline": {"pp": 0.31, "tg": 0.22},
        "peak_rss_bytes": 405_000_000 + int(bits * 875_000),  # q8_0: 412 MB
        "impls": {"cpu-q8_0[avx512_vnni]": 43} if recipe == "q8_0" else {"reference": 36, "torch-bf16": 7},
        "isa": "avx512_vnni",
        "protocol": {"name": "windows-1024", "hash": protocol},
    }
    origin = {
        "commit": "0123456789abcdef",
        "dirty": False,
        "code": "c0de",
        "versions": {},
        "time": "2026-01-01T00:00:00+00:00",
    }
    hardware = {"id": machine, "cpu": "Some Processor", "cores": 2}
    key = f"{model}-{recipe}-{machine}-{protocol}"
    row: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "key": key, "status": "ok", "error": None, "case": case}
    return row | {"metrics": measured | metrics, "machine": hardware, **origin}


def failed_record(recipe: str, error: str) -> dict[str, Any]:
    return make_record(recipe) | {"status": "error", "error": error, "metrics": None}


def write_records(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def sweep_records() -> list[dict[str, Any]]:
    return [make_record(recipe) for recipe in SWEEP]
