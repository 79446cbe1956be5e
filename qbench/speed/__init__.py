"""Prefill and decode timed in rounds, next to the machine's peaks."""
