"""The best way to store a model within given memory and speed, on this machine."""

from qbench.recommend.goal import Goal
from qbench.recommend.recommend import Asked, recommend

__all__ = ["Asked", "Goal", "recommend"]
