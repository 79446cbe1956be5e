"""A comparison as one plain mapping."""

from typing import Any

from qbench.compare.side import Record
from qbench.statistics import Comparison


def json_row(comparison: Comparison) -> dict[str, Any]:
    """{a, b: which rows; cells: one a metric; left_out: why the others are none}"""
    cells = [cell.as_dict() for cell in comparison.cells]
    return {"a": _which(comparison.a), "b": _which(comparison.b), "cells": cells, "left_out": comparison.left_out}


def _which(record: Record) -> dict[str, Any]:
    protocol = record["metrics"].get("protocol") or {}
    about = {name: record["case"].get(name) for name in ("model", "recipe", "cache", "threads", "context", "batch")}
    origin = {"key": record["key"], "machine": record["machine"]["id"], "commit": record.get("commit")}
    return {**about, **origin, "time": record["time"], "protocol_hash": protocol.get("hash")}
