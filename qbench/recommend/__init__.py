"""The best way to store a model within given memory and speed, on this machine."""

from qbench.recommend.goal import Goal
from qbench.recommend.recommend import recommend

__all__ = ["Goal", "recommend"]
