import json
import math

import numpy as np

from qbench.harness.blocks import block_sums


def test_sums_are_those_of_each_block_in_order():
    nll = np.arange(10.0)
    blocks = block_sums("document", np.array([3, 1, 0, 6]), {"nll": nll, "kld": nll / 8})
    assert blocks["unit"] == "document" and blocks["tokens"] == [3, 1, 0, 6]
    assert blocks["nll"] == [0 + 1 + 2, 3, 0, 4 + 5 + 6 + 7 + 8 + 9]
    assert blocks["kld"] == [value / 8 for value in blocks["nll"]]
    json.dumps(blocks, allow_nan=False)


def test_a_value_that_is_not_finite_leaves_no_blocks():
    for poison in (math.nan, math.inf):
        assert block_sums("window", np.array([2]), {"nll": np.ones(2), "kld": np.array([0, poison])}) is None
