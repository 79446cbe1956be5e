from collections import Counter

import numpy as np
from support.close import assert_close

from qbench.reference.ngram import Trigram


def trigram_ref(train: list[int], vocab_size: int, a: int, b: int, c: int) -> float:
    """Witten-Bell by the formula, one probability at a time."""

    def interpolate(context: tuple[int, ...], lower: float) -> float:
        order = len(context)
        after = Counter(train[i + order] for i in range(len(train) - order) if tuple(train[i : i + order]) == context)
        total, kinds = sum(after.values()), len(after)
        return (after[c] + kinds * lower) / (total + kinds) if total else lower

    return interpolate((a, b), interpolate((b,), interpolate((), 1 / vocab_size)))


def test_against_the_formula():
    rng = np.random.default_rng(0)
    train, text = rng.integers(0, 7, 120), rng.integers(0, 8, 60)  # token 7 was never seen
    got = Trigram(train, vocab_size=9).log_probs(text)
    expected = [np.log(trigram_ref(train.tolist(), 9, *text[i : i + 3].tolist())) for i in range(len(text) - 2)]
    assert_close(got, np.array(expected), rtol=100 * 2**-52)


def test_probabilities_sum_to_one():
    train = np.random.default_rng(0).integers(0, 5, 50)
    model = Trigram(train, vocab_size=6)
    total = sum(np.exp(model.log_probs(np.array([1, 2, c]))[0]) for c in range(6))
    assert_close(total, 1.0, rtol=100 * 2**-52)
