"""The serving engine: many requests at once over one pool of pages."""

from qbench.runtime.engine.engine import Engine, EngineStats
from qbench.runtime.engine.errors import NeverFits, QueueFull
from qbench.runtime.engine.options import EngineOptions
from qbench.runtime.engine.request import Event, Request, most_tokens

__all__ = ["Engine", "EngineOptions", "EngineStats", "Event", "NeverFits", "QueueFull", "Request", "most_tokens"]
