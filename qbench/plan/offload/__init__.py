"""Places of weights, keys and values when memory is short: measured tiers, a cost model, the best placement."""

from qbench.plan.offload.plan import OffloadCase, OffloadPlan, measured_plan, plan_offload

__all__ = ["OffloadCase", "OffloadPlan", "measured_plan", "plan_offload"]
