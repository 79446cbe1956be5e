"""Throughput of many requests at once: the engine next to static batches, itself without reuse, and llama.cpp."""
