"""Whether calibration text and evaluation text are the same text: long runs of tokens that both have."""

from collections.abc import Iterable, Sequence

import numpy as np

from quant.errors import InputError

# Independent texts of one author share phrases, not runs of this length.
RUN = 64
MOST_SHARED = 0.01  # of the evaluation's runs: quotations and boilerplate
MULTIPLIER = np.uint64(6364136223846793005)  # odd; Knuth's, so that the low bits of ids reach all bits of the hash


def check_overlap(calibration: Iterable[np.ndarray], evaluation: Sequence[np.ndarray]) -> None:
    """Token ids, [T] each.

    raises   InputError if more than MOST_SHARED of the evaluation's runs of RUN tokens are in the calibration text
    """
    known = np.unique(np.concatenate([run_hashes(window) for window in calibration]))
    runs = [run_hashes(window) for window in evaluation]
    found = np.concatenate([np.isin(each, known) for each in runs])
    if len(found) and found.mean() > MOST_SHARED:
        raise InputError(
            f"{found.mean():.0%} of the evaluation text is in the calibration text too; a mix that is fitted to a text "
            "cannot be checked on it: give --text a text that --calibration does not have"
        )


def run_hashes(tokens: np.ndarray) -> np.ndarray:
    """[T] -> [T - RUN + 1] uint64, one per run of RUN tokens; empty for a shorter text"""
    count = max(0, len(tokens) - RUN + 1)
    hashes = np.zeros(count, dtype=np.uint64)
    for start in range(RUN):
        hashes = hashes * MULTIPLIER + tokens[start : start + count].astype(np.uint64) + np.uint64(1)
    return hashes
