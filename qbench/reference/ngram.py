"""A trigram model: the perplexity of a reader who sees two words back, as the line that a network must beat."""

from itertools import islice

import numpy as np
from tokenizers import Tokenizer

from qbench.reference.corpus import EOS, documents

TRAINING_SEED = 5  # of the training stream, so its training text is not held out


class Trigram:
    """Interpolated trigram probabilities with Witten-Bell smoothing: nothing to tune.

    P(c | a b) = (count(abc) + kinds(ab) * P(c | b)) / (count(ab) + kinds(ab)), and so on down to 1 / V,
    where kinds(ab) is the number of different tokens seen after ab.

    source   Witten and Bell 1991, "The zero-frequency problem", method C; interpolated as in Chen and Goodman 1998
    """

    def __init__(self, tokens: np.ndarray, vocab_size: int):
        self.vocab_size, self.num_tokens = vocab_size, len(tokens)
        self.orders = [_Counts(tokens, order, vocab_size) for order in (1, 2, 3)]

    def log_probs(self, tokens: np.ndarray) -> np.ndarray:
        """ln P of each token from the third on, given the two before: [T - 2] float64."""
        probability = np.full(len(tokens) - 2, 1.0 / self.vocab_size)
        for counts in self.orders:
            probability = counts.interpolate(tokens, probability)
        return np.log(probability)


class _Counts:
    """How often each n-gram of one order, and each of its contexts, was seen."""

    def __init__(self, tokens: np.ndarray, order: int, vocab_size: int):
        self.order, self.vocab_size = order, vocab_size
        self.grams, self.gram_counts = np.unique(self._codes(tokens), return_counts=True)
        self.contexts, first = np.unique(self.grams // vocab_size, return_index=True)
        self.context_counts = np.add.reduceat(self.gram_counts, first)
        self.context_kinds = np.diff(np.append(first, len(self.grams)))

    def interpolate(self, tokens: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """This order's probabilities from the lower order's: [T - 2] float64."""
        codes = self._codes(tokens)[3 - self.order :]  # those that end at the third token and on
        seen = _look_up(self.grams, self.gram_counts, codes)
        context = codes // self.vocab_size
        total = _look_up(self.contexts, self.context_counts, context)
        kinds = _look_up(self.contexts, self.context_kinds, context)
        # A context never seen has total = kinds = 0: the lower order decides.
        return np.where(total > 0, (seen + kinds * lower) / np.maximum(total + kinds, 1), lower)

    def _codes(self, tokens: np.ndarray) -> np.ndarray:
        """Each n-gram as one number, the last token in the lowest place: [T - order + 1] int64."""
        length = len(tokens) - self.order + 1
        codes = np.zeros(length, dtype=np.int64)
        for i in range(self.order):
            codes = codes * self.vocab_size + tokens[i : i + length]
        return codes


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """values[i] where keys[i] == wanted, else 0; keys are sorted."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def train_trigram(tokenizer: Tokenizer, num_documents: int = 4000) -> Trigram:
    """A trigram model of the training stream: 4000 documents are about 1.3 million tokens."""
    texts = [EOS + text for text in islice(documents(TRAINING_SEED), num_documents)]
    tokens = np.concatenate([np.array(encoding.ids) for encoding in tokenizer.encode_batch(texts)])
    return Trigram(tokens, tokenizer.get_vocab_size())
