"""Texts that share long runs are refused, wherever the runs begin."""

import numpy as np
import pytest

from qbench.search.refusals import RUN, check_overlap
from quant.errors import InputError

RNG = np.random.default_rng(5)
CALIBRATION = RNG.integers(0, 500, (4, 512))


def test_other_text():
    check_overlap(CALIBRATION, [RNG.integers(0, 500, 700)])


def test_the_same_text_at_another_place():
    text = RNG.integers(0, 500, 1000)
    text[123 : 123 + 2 * RUN] = CALIBRATION[2, 7 : 7 + 2 * RUN]
    with pytest.raises(InputError, match="of the evaluation text is in the calibration text"):
        check_overlap(CALIBRATION, [text])


def test_a_run_one_token_too_short_does_not_count():
    text = np.concatenate([CALIBRATION[0, : RUN - 1], [600]])
    check_overlap(CALIBRATION, [text])
    with pytest.raises(InputError):
        check_overlap(CALIBRATION, [CALIBRATION[0, :RUN]])


def test_texts_shorter_than_a_run():
    check_overlap(CALIBRATION[:, :8], [CALIBRATION[0, :8]])
