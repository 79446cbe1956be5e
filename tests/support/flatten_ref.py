"""The table of a sweep's records made the slow, obvious way: each record a dictionary, each column by hand."""

import json
from typing import Any

STATISTICS = ("mean", "median", "p90", "p99", "p999", "max")
OF_METRICS = (
    *("bits_per_weight", "size_bytes", "artifact", "perplexity", "num_tokens", "non_finite", "same_top"),
    *("pp_tok_s", "tg_tok_s", "ttft_ms", "tpot_ms", "peak_rss_bytes", "baseline_rss_bytes", "kv_bytes_per_token"),
    *("quantize_seconds", "quantize_peak_rss_bytes", "seconds", "isa"),
)
OF_CASE = ("model", "recipe", "kv_format", "device", "fingerprint", "threads", "context", "batch")
DEFAULTS = {"cache": "dynamic", "policy": "full", "compute": "fast"}
OF_RECORD = ("status", "error", "commit", "dirty", "code", "versions", "time", "key")


def latest_rows(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A flat row for the latest record of each case and machine, in the order in which they first came."""
    cases = list(dict.fromkeys((record["key"], record["machine"]["id"]) for record in records))
    by_time = sorted(records, key=lambda record: record["time"])
    latest = {case: None for case in cases} | {(record["key"], record["machine"]["id"]): record for record in by_time}
    return [flatten(record) for record in latest.values() if "kind" not in record["case"]]


def flatten(record: dict[str, Any]) -> dict[str, Any]:
    case, metrics, machine = record["case"], record["metrics"] or {}, record["machine"]
    bench, protocol = case.get("bench") or {}, metrics.get("protocol") or {}
    row = {name: metrics.get(name) for name in OF_METRICS}
    row |= {name: case.get(name) for name in OF_CASE}
    row |= {name: bench.get(name) for name in ("pp", "tg", "depth")}
    row |= {name: record.get(name) for name in OF_RECORD}
    row |= {f"kld_{name}": (metrics.get("kld") or {}).get(name) for name in STATISTICS}
    for name in ("perplexity", "kld"):
        row[f"{name}_low"], row[f"{name}_high"] = metrics.get(f"{name}_interval") or (None, None)
    for phase in ("pp", "tg"):
        spread = (metrics.get("spread") or {}).get(f"{phase}_tok_s") or {}
        row |= {f"{phase}_min": spread.get("min"), f"{phase}_max": spread.get("max")}
        row[f"roofline_{phase}"] = None if counts_all_tokens(record) else share_of(record, phase)
    row |= {name: case.get(name, default) for name, default in DEFAULTS.items()}
    return row | {
        "predicted_bytes": (metrics.get("predicted_bytes") or {}).get("total"),
        "load_average": (metrics.get("load_average") or {}).get("before", [None])[0],
        "impls": ", ".join(metrics.get("impls") or {}) or None,
        "protocol": protocol.get("name"),
        "protocol_hash": protocol.get("hash"),
        "machine": machine["id"],
        "cpu": machine["cpu"],
        "cores": machine["cores"],
        "shared": shared(record),
    }


def share_of(record: dict[str, Any], phase: str) -> float | None:
    """None above all, and of a decode step whose bytes the processor's cache holds."""
    case, metrics = record["case"], record["metrics"] or {}
    bound = metrics.get("roofline") or {}
    share, read = bound.get(phase), bound.get("tg_bytes")
    if share is None or share > 1.005:
        return None
    may_fit = phase == "tg" and read is not None and case.get("memory") is None and case.get("device") == "cpu"
    cache = (metrics.get("machine_peaks") or {}).get("cache_bytes")
    return None if may_fit and sum(read.values()) <= (2**30 if cache is None else cache) else share


def counts_all_tokens(record: dict[str, Any]) -> bool:
    """Whether the bound of a row under a policy cannot hold: more bytes than the cache, or a speed beyond it."""
    case, metrics = record["case"], record["metrics"] or {}
    bound, held = metrics.get("roofline") or {}, metrics.get("kv_bytes_held")
    read = (bound.get("tg_bytes") or {}).get("kv_read")
    too_many = case.get("kv_ram") is None and None not in (read, held) and read > held
    return case.get("policy", "full") != "full" and (too_many or max(bound.get(p) or 0 for p in ("pp", "tg")) > 1)


def shared(record: dict[str, Any]) -> str:
    """Common values of rows in one table, without the protocol."""
    of_recipe = ("recipe", "recipe_sha256", "kv_format", "cache", "policy")
    settings = {name: value for name, value in record["case"].items() if name not in of_recipe}
    return json.dumps([settings, record["machine"]["id"]], sort_keys=True)
