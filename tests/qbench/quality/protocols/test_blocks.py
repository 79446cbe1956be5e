import json
import math
from dataclasses import replace

import numpy as np
from support.perplexity import plan_of

from qbench.quality.protocols.scoring import blocks_of

SCORING = plan_of(np.zeros((4, 4), dtype=np.int64))  # 4 windows of 3 scored tokens
NLL = np.arange(12.0)


def test_sums_belong_to_each_block_in_order():
    blocks = blocks_of(SCORING, {"nll": NLL, "kld": NLL / 8}).to_json()
    assert blocks["unit"] == "window" and blocks["tokens"] == [3, 3, 3, 3] and "units" not in blocks
    assert blocks["nll"] == [0 + 1 + 2, 3 + 4 + 5, 6 + 7 + 8, 9 + 10 + 11]
    assert blocks["kld"] == [value / 8 for value in blocks["nll"]]
    json.dumps(blocks, allow_nan=False)


def test_a_block_may_have_several_windows():
    windows = [replace(window, block=block) for window, block in zip(SCORING.windows, (0, 0, 1, 1), strict=True)]
    scoring = replace(SCORING, windows=windows, block_unit="document", units=np.array([2.0, 5.0]))
    blocks = blocks_of(scoring, {"nll": NLL}).to_json()
    assert blocks == {"unit": "document", "tokens": [6, 6], "units": [2, 5], "nll": [15, 51]}


def test_a_value_that_is_not_finite_leaves_no_blocks():
    for poison in (math.nan, math.inf):
        assert blocks_of(SCORING, {"nll": NLL, "kld": np.where(NLL == 7, poison, 0)}) is None
