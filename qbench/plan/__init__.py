"""Memory before anything is made: weights, KV cache, workspace, and the sizes that fit."""

from qbench.plan.measured import compared, measured
from qbench.plan.plan import CASE_KEYS, PlanCase, plan

__all__ = ["CASE_KEYS", "PlanCase", "compared", "measured", "plan"]
