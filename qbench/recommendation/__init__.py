"""The best way to store a model within given memory and speed, on this machine."""

from qbench.recommendation.goal import Goal
from qbench.recommendation.recommend import Asked, recommend

__all__ = ["Asked", "Goal", "recommend"]
