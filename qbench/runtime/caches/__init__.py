"""Caches: each owns the keys and values of its sequences, and the attention over them."""
