"""The keys that every record has, so that readers can rely on them, and its times: another line is no record."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

STATES = ("ok", "error")
TIME = r"\d{4}-\d\d-\d\dT.*"  # in any form of ISO 8601: a Record has it in one form
# Keys of the case of a measured model's row, and whether each may be null: a null recipe means the model as stored.
# Rows of other kinds say their `kind`.
OF_MODEL = {"model": False, "recipe": True}
PARTS = ("kld", "blocks", "protocol", "protocols", "tasks", "samples")  # metrics that have figures of their own
# Metrics that are numbers if they were measured.
FIGURES = ("bits_per_weight", "size_bytes", "perplexity", "same_top", "pp_tok_s", "tg_tok_s")
# "+" sorts before "." and before digits, so a moment is before all those that have more digits.
UTC_TEXT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00"
_UTC_TEXT = re.compile(UTC_TEXT)


def is_record(record: Any) -> bool:
    """Whether the content of a line is a record, of any schema."""
    try:
        schema, case, metrics, status = (record[name] for name in ("schema_version", "case", "metrics", "status"))
        identity = record["key"], record["machine"]["id"]
        time = record["time"]
    except (TypeError, KeyError):
        return False
    return (
        _is_version(schema)
        and None not in identity
        and status in STATES
        and isinstance(time, str)
        and re.fullmatch(TIME, time) is not None
        and isinstance(case, dict)
        and (isinstance(case.get("kind"), str) or _is_of_model(case))
        and (_are_metrics(metrics) if status == "ok" else metrics is None or _are_metrics(metrics))
    )


def _is_of_model(case: Mapping[str, Any]) -> bool:
    return all(
        isinstance(case.get(name), str) or (may_be_null and name in case and case[name] is None)
        for name, may_be_null in OF_MODEL.items()
    )


def _is_version(schema: Any) -> bool:
    return isinstance(schema, int) and not isinstance(schema, bool) and schema >= 1


def _are_metrics(metrics: Any) -> bool:
    return (
        isinstance(metrics, Mapping)
        and all(_is_number(metrics.get(name)) for name in FIGURES)
        and all(isinstance(metrics.get(name), (Mapping, type(None))) for name in PARTS)
    )


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def utc_text(time: str) -> str:
    """The same moment in UTC_TEXT's form; a time without an offset is of UTC. A text that is no time stays as it is."""
    if _UTC_TEXT.fullmatch(time):
        return time
    try:
        moment = datetime.fromisoformat(time)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):  # no day of the calendar, or not in the years of `datetime`
        return time
