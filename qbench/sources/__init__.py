"""Models by the specs that every command takes."""

from qbench.sources.listing import list_models
from qbench.sources.open import open_source

__all__ = ["list_models", "open_source"]
