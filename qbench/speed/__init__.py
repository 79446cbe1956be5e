"""Prefill and decode timed in rounds, beside what the machine could do at most."""
