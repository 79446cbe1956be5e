"""All records at once: tables of them, and SQL over them."""

from qbench.store.load import latest_records, load_records

__all__ = ["latest_records", "load_records"]
