"""All records at once: tables of them, and SQL over them."""

from qbench.store.load import latest_records, load_records, load_with_others, measured_keys
from qbench.store.query import query, schema

__all__ = ["latest_records", "load_records", "load_with_others", "measured_keys", "query", "schema"]
