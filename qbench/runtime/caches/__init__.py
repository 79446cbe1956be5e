"""Caches: each owns the keys and values of its sequences, and the attention over them.

A `KVCache` has the four parts that the folders are named after: bytes in a `storage`, `places` in it, a `view` of them,
and a `policy` that keeps some tokens. `cache_maker.CacheMaker` puts them together.
"""
