import numpy as np
import pytest
import torch
from support.perplexity import plan_of

from qbench.quality.protocols.forward import MAX_BATCH, batches
from qbench.quality.protocols.scoring import Scoring
from qbench.quality.protocols.windows import sliding

TOKENS = np.arange(1, 1001)
WHOLE = plan_of(TOKENS.reshape(10, 100))


def of_unequal_lengths() -> Scoring:
    """Overlapping windows, the last one shorter; every second one is one of WHOLE's"""
    windows = sliding(TOKENS[:960], 100, 50, None)
    return Scoring(WHOLE.protocol, windows, "window")


def test_every_window_is_in_one_batch_under_its_own_tokens():
    scorings, seen = [WHOLE, of_unequal_lengths()], []
    for batch in batches(scorings, vocab_size=37):
        assert batch.tokens.shape[0] == len(batch.uses) <= MAX_BATCH
        for row, uses in zip(batch.tokens, batch.uses, strict=True):
            for p, w in uses:
                window = scorings[p].windows[w].tokens
                assert np.array_equal(row[: len(window)], window) and not row[len(window) :].any()
                seen.append((p, w))
    assert sorted(seen) == [(p, w) for p, scoring in enumerate(scorings) for w in range(len(scoring.windows))]


def test_windows_of_the_same_tokens_run_once():
    alone = [sum(len(batch.uses) for batch in batches([scoring], 37)) for scoring in (WHOLE, of_unequal_lengths())]
    together = sum(len(batch.uses) for batch in batches([WHOLE, of_unequal_lengths()], 37))
    assert alone == [10, 19] and together == 10 + 19 - 9  # windows at 0, 100, ..., 800 are in both


def test_windows_of_one_length_keep_the_order_of_the_text():
    order = [w for batch in batches([WHOLE], 37) for uses in batch.uses for _, w in uses]
    assert order == list(range(10))


@pytest.mark.parametrize("vocab_size, rows", [(37, MAX_BATCH), (128 << 20, 1)])
def test_a_batch_holds_no_more_than_its_logits_may_take(vocab_size, rows):
    assert next(batches([WHOLE], vocab_size)).tokens.shape == (rows, 100)


def test_a_repeated_text_is_scored_at_each_occurrence():
    same = plan_of(np.ones((3, 5), dtype=np.int64))
    (batch,) = batches([same], 37)
    assert batch.uses == [[(0, 0), (0, 1), (0, 2)]] and torch.equal(batch.tokens, torch.ones(1, 5, dtype=torch.int64))
