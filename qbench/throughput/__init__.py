"""Throughput of many requests at once: the engine beside static batches, itself without reuse, and llama.cpp."""
