"""Records as a table: the latest row of each case, with a group for everything that may stand side by side."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.harness.record import read_files
from qbench.report.speeds import kind_of

if TYPE_CHECKING:
    import pandas as pd

# Recipes that keep the weights as they are or only cast them: the row that others are read against.
UNQUANTIZED = ("f32", "f16", "bf16")


def load_records(paths: str | Path | Iterable[str | Path]) -> "pd.DataFrame":
    """One row a case of a sweep: what defines it, its figures under the records' names, flattened, and its origin.

    paths    files of records, or folders of them
    Rows of one `group` have the same model, protocol, machine, settings and threads; no others compare.
    raises   InputError for a file that cannot be read
    """
    import pandas as pd

    latest = {key: record for key, record in latest_records(paths).items() if kind_of(record) is None}
    protocols = _protocols(latest.values())
    rows = [_flatten(record, protocols) for record in latest.values()]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame = frame.sort_values(["is_baseline", "bits_per_weight"], ascending=[False, False], kind="stable")
    return frame.reset_index(drop=True)


def latest_records(paths: str | Path | Iterable[str | Path]) -> dict[tuple[str, str], dict[str, Any]]:
    """The last record of each case and machine, of every kind: a later row replaces an earlier one."""
    return {(record["key"], record["machine"]["id"]): record for record in read_files(paths)}


COLUMNS = [
    *("group", "model", "recipe", "is_baseline", "status", "error"),
    *("bits_per_weight", "size_bytes", "artifact"),
    *("perplexity", "perplexity_low", "perplexity_high", "num_tokens", "non_finite"),
    *("kld_mean", "kld_low", "kld_high", "kld_median", "kld_p90", "kld_p99", "kld_p999", "kld_max", "same_top"),
    *("pp", "tg", "depth", "pp_tok_s", "pp_min", "pp_max", "tg_tok_s", "tg_min", "tg_max", "ttft_ms", "tpot_ms"),
    *("roofline_pp", "roofline_tg", "peak_rss_bytes", "baseline_rss_bytes", "predicted_bytes", "kv_bytes_per_token"),
    *("quantize_seconds", "quantize_peak_rss_bytes"),
    *("impls", "isa", "device", "threads", "context", "batch", "load_average"),
    *("protocol", "protocol_hash", "machine", "cpu", "cores", "commit", "dirty", "code", "versions", "time", "key"),
]

OF_RECORD = ("status", "error", "commit", "dirty", "code", "versions", "time", "key")


def _flatten(record: dict[str, Any], protocols: dict[str, str]) -> dict[str, Any]:
    case, metrics, machine = record["case"], record["metrics"] or {}, record["machine"]
    protocol = metrics.get("protocol") or {}
    kld = {f"kld_{name}": value for name, value in (metrics.get("kld") or {}).items()}
    low_high = {
        "perplexity": metrics.get("perplexity_interval"),
        "kld": metrics.get("kld_interval"),
    }
    intervals = {f"{name}_{end}": value for name, both in low_high.items() for end, value in _ends(both)}
    speeds = {}
    for phase in ("pp", "tg"):
        spread = (metrics.get("spread") or {}).get(f"{phase}_tok_s") or {}
        speeds |= {f"{phase}_min": spread.get("min"), f"{phase}_max": spread.get("max")}
        speeds[f"roofline_{phase}"] = (metrics.get("roofline") or {}).get(phase)
    flat = {name: metrics.get(name) for name in COLUMNS if name in metrics}
    return flat | {
        **{name: case.get(name) for name in ("model", "recipe", "device", "threads", "context", "batch")},
        **{name: (case.get("bench") or {}).get(name) for name in ("pp", "tg", "depth")},
        **kld,
        **intervals,
        **speeds,
        **{name: record.get(name) for name in OF_RECORD},
        "is_baseline": case["recipe"] in UNQUANTIZED,
        "predicted_bytes": (metrics.get("predicted_bytes") or {}).get("total"),
        "load_average": (metrics.get("load_average") or {}).get("before", [None])[0],
        "impls": ", ".join(metrics.get("impls") or {}) or None,
        "protocol": protocol.get("name"),
        "protocol_hash": protocol.get("hash"),
        "machine": machine["id"],
        "cpu": machine["cpu"],
        "cores": machine["cores"],
        "group": _group(record, protocol.get("hash") or protocols.get(_settings(record))),
    }


def _ends(both: list[float] | None) -> list[tuple[str, float | None]]:
    low, high = both or (None, None)
    return [("low", low), ("high", high)]


def _settings(record: dict[str, Any]) -> str:
    """All that a case shares with those beside it: everything but the recipe and what follows from it, and the machine.

    A recipe says how keys and values are kept, so the cache is one of the things that it is compared in.
    """
    of_recipe = ("recipe", "recipe_sha256", "cache")
    shared = {name: value for name, value in record["case"].items() if name not in of_recipe}
    return json.dumps([shared, record["machine"]["id"]], sort_keys=True)


def _protocols(records: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Settings -> protocol hash, for rows that failed before they had one."""
    known = {}
    for record in records:
        protocol = (record["metrics"] or {}).get("protocol")
        if protocol:
            known[_settings(record)] = protocol["hash"]
    return known


def _group(record: dict[str, Any], protocol_hash: str | None) -> str:
    return hashlib.sha256(f"{_settings(record)}{protocol_hash}".encode()).hexdigest()[:12]
