"""Instances of an engine on several ranks that lend pages of their KV caches to each other (Infinite-LLM)."""

from qbench.runtime.lending.instance import Instance, run_until_done

__all__ = ["Instance", "run_until_done"]
