"""The table of what `qbench plan` kept: memory by part from a config alone, beside the peak where one was measured."""

from typing import Any

from qbench.report.speeds import Cells

MISSING = "n/a"


def planned_cells(records: list[dict[str, Any]]) -> Cells:
    """One row a plan; figures of memory in GB, and how much of the measured peak was predicted."""
    heading = ["model", "recipe", "KV", "cache", "policy", "context", "batch"]
    heading += [
        "weights GB",
        "KV GB",
        "workspace GB",
        "total GB",
        "fits",
        "predicted peak GB",
        "measured GB",
        "predicted / measured",
    ]
    cells = []
    for record in records:
        case, metrics = record["case"], record["metrics"]
        about = [case["model"], case["recipe"] or "as stored", case["kv_format"] or "float32"]
        about += [case["cache"], case["policy"]]
        parts = [gigabytes(metrics[f"{part}_bytes"]) for part in ("resident", "kv", "workspace", "total")]
        peaks = [gigabytes(metrics.get(name)) for name in ("predicted_peak_bytes", "peak_rss_bytes")]
        ratio = f"{metrics['ratio']:.3f}" if "ratio" in metrics else MISSING
        cells.append([*about, str(case["context"]), str(case["batch"]), *parts, fits(metrics), *peaks, ratio])
    return heading, cells, [False] * 5 + [True] * 6 + [False] + [True] * 3


def gigabytes(size: float | None) -> str:
    return MISSING if size is None else f"{size / 1e9:.3f}"


def fits(metrics: dict[str, Any]) -> str:
    """ "in 24.0 GB", "not in 24.0 GB"; nothing was asked: n/a"""
    if "fits" not in metrics:
        return MISSING
    return f"{'' if metrics['fits'] else 'not '}in {metrics['memory_bytes'] / 1e9:.1f} GB"
