import numpy as np

from quant.methods.gptq_order import act_order, group_aware_order, plain_order

IMPORTANCE = np.array([5, 6, 1, 9, 3, 4, 8, 2], dtype=np.float32)  # groups of two: (5, 6), (1, 9), (3, 4), (8, 2)


def test_groups_come_by_their_most_important_feature():
    order = group_aware_order(IMPORTANCE, 2)
    assert order.columns.tolist() == [3, 2, 6, 7, 1, 0, 5, 4]
    assert order.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and order.g_idx is None


def test_act_order_forms_groups_in_the_order_of_importance():
    order = act_order(IMPORTANCE, 2, static_groups=False)
    assert order.columns.tolist() == [3, 6, 1, 0, 5, 4, 7, 2]
    assert order.group.tolist() == order.g_idx.tolist() == [1, 1, 3, 0, 2, 2, 0, 3]


def test_static_groups_stay_neighbours():
    order = act_order(IMPORTANCE, 2, static_groups=True)
    assert order.columns.tolist() == [3, 6, 1, 0, 5, 4, 7, 2]
    assert order.group.tolist() == plain_order(8, 2).group.tolist() and order.g_idx is None
