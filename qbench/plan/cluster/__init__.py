"""The best division of a model among the devices of a cluster that is described in a file."""

from qbench.plan.cluster.hosts import Cluster
from qbench.plan.cluster.plan import ClusterCase, ClusterPlan, LayoutPlan, plan_cluster
from qbench.plan.cluster.read import read_cluster

__all__ = ["Cluster", "ClusterCase", "ClusterPlan", "LayoutPlan", "plan_cluster", "read_cluster"]
