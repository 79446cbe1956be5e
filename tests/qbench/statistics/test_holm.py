from support.close import assert_close

from qbench.statistics.verdict import holm


def test_by_hand():
    assert_close(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02], rtol=1e-15)


def test_never_above_one_nor_below_the_raw_value():
    assert holm([0.9, 0.8, 0.2]) == [1.0, 1.0, 0.6000000000000001]


def test_no_p_values_give_no_result():
    assert holm([]) == []


def test_missing_p_values_count_for_nothing():
    assert holm([None, 0.02, None, 0.03]) == [None, 0.04, None, 0.04]
    assert holm([None]) == [None]
