"""The order in which GPTQ rounds the columns of a weight.

An early column has many later ones to make up for its error, so the important ones come first. The format limits how
far they may come forward.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """columns  [K] int64: the column rounded c-th is input feature columns[c]
    group       [K] int64: the group of input feature k, whose scale it shares
    g_idx       `group` if a format must store it, as features of a group are no neighbours; else None
    """

    columns: np.ndarray
    group: np.ndarray
    g_idx: np.ndarray | None = None


def plain_order(num_columns: int, group_size: int) -> ColumnOrder:
    """As they are."""
    columns = np.arange(num_columns)
    return ColumnOrder(columns, columns // group_size)


def group_aware_order(importance: np.ndarray, group_size: int) -> ColumnOrder:
    """Groups by their most important feature, and the features within each by their own importance.

    A group keeps its members, so nothing is stored of the order.

    importance   [K] float, the diagonal of the Hessian
    source       GPTQModel's act_group_aware
    """
    groups = importance.reshape(-1, group_size)
    within = np.argsort(-groups, axis=1, kind="stable")
    order = np.argsort(-groups.max(axis=1), kind="stable")
    columns = (order[:, None] * group_size + within[order]).reshape(-1)
    return ColumnOrder(columns, np.arange(len(importance)) // group_size)


def act_order(importance: np.ndarray, group_size: int, static_groups: bool) -> ColumnOrder:
    """All features by importance. Groups are then runs in that order, which g_idx stores, unless they are static.

    source   arXiv 2210.17323's code, --act-order and --static-groups
    """
    columns = np.argsort(-importance, kind="stable")
    if static_groups:
        return ColumnOrder(columns, np.arange(len(columns)) // group_size)
    group = np.empty(len(columns), dtype=np.int64)
    group[columns] = np.arange(len(columns)) // group_size
    return ColumnOrder(columns, group, group.astype(np.int32))
