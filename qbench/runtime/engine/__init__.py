"""The serving engine: many requests at once over one pool of pages."""

from qbench.runtime.engine.engine import Engine, EngineStats
from qbench.runtime.engine.open_store import StoreOptions, store_opener
from qbench.runtime.engine.options import EngineOptions
from qbench.runtime.engine.request import Event, NeverFits, QueueFull, Request, most_tokens
from qbench.runtime.engine.stored_prefixes import StoreStats

__all__ = [
    "Engine",
    "EngineOptions",
    "EngineStats",
    "Event",
    "NeverFits",
    "QueueFull",
    "Request",
    "StoreOptions",
    "StoreStats",
    "most_tokens",
    "store_opener",
]
