"""The tokens of a text that one protocol scores, the options that decide it besides the name, and its blocks."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from qbench.measure.quality_figures import Blocks
from qbench.quality.protocols.documents import Passage
from qbench.quality.protocols.protocol import Protocol
from qbench.quality.protocols.windows import Window
from quant.atomic import atomic_file
from quant.errors import InputError
from quant.source import TokenizerInfo

GPTQ_WINDOW = 2048  # also the longest window of `stride-N` and `lm-eval-*`, whatever context the model has


@dataclass(frozen=True)
class Scoring:
    """The windows of one protocol, in the order of the text."""

    protocol: Protocol
    windows: list[Window]
    block_unit: str  # "window" or "document"
    units: np.ndarray | None = None  # [blocks] float64 words or bytes of each; None: tokens are counted
    num_words: int | None = None
    num_bytes: int | None = None

    @cached_property
    def sizes(self) -> np.ndarray:
        """[W] scored tokens of each window."""
        return np.array([len(window.targets) for window in self.windows])

    @cached_property
    def starts(self) -> np.ndarray:
        """[W + 1] index at which each window's scored tokens begin among all of them."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def num_blocks(self) -> int:
        return 1 + self.windows[-1].block

    @cached_property
    def block_sizes(self) -> np.ndarray:
        """[blocks] scored tokens of each block."""
        return self.block_sums(np.ones(self.starts[-1])).astype(np.int64)

    def block_sums(self, values: np.ndarray) -> np.ndarray:
        """values [N] -> [blocks]"""
        return np.bincount(np.repeat([window.block for window in self.windows], self.sizes), values, self.num_blocks)

    @cached_property
    def positions(self) -> np.ndarray:
        """[N] how many tokens of its window each scored token has before it."""
        return np.concatenate([np.arange(w.first, w.first + len(w.targets)) + 1 for w in self.windows])


@dataclass(frozen=True)
class Setting:
    """A text, the tokenizer and the context that it meets, and how much of it is scored."""

    passage: Passage
    tokenizer: TokenizerInfo
    context: int
    limit: int | None  # number of windows, or of documents if those are scored; None: all
    kept: Path | None = None  # folder where tokens of texts are kept

    @property
    def longest(self) -> int:
        return min(self.context, GPTQ_WINDOW)

    @cached_property
    def tokens(self) -> np.ndarray:
        """[T] int64 of the text as one stream, with BOS where the tokenizer's model expects one."""
        return self._encode(special=True)

    @cached_property
    def plain_tokens(self) -> np.ndarray:
        """The same with special tokens in the text spelt out like any other text."""
        return self._encode(special=False)

    @cached_property
    def document_tokens(self) -> list[np.ndarray]:
        from qbench.runtime import Tokenizer

        tokenizer = Tokenizer(self.tokenizer)
        return [np.asarray(tokenizer.encode(document.text), dtype=np.int64) for document in self.passage.documents]

    @cached_property
    def data_sha256(self) -> str:
        return hashlib.sha256(self.passage.text.encode()).hexdigest()

    def _encode(self, special: bool) -> np.ndarray:
        def encode() -> np.ndarray:
            from qbench.runtime import Tokenizer

            tokenizer = Tokenizer(self.tokenizer)
            tokenizer.tokenizer.encode_special_tokens = not special
            return np.asarray(tokenizer.encode(self.passage.stream), dtype=np.int64)

        tokens = kept_tokens(self.kept, self.tokenizer, self.passage.stream, special, encode)
        if len(tokens) < 2:
            raise InputError(
                f"the text has {len(tokens)} tokens, at least 2 are needed to predict one; give a longer text"
            )
        return tokens


def kept_tokens(
    folder: Path | None, tokenizer: TokenizerInfo, text: str, special: bool, encode: Callable[[], np.ndarray]
) -> np.ndarray:
    """Result of `encode` for this text, tokenizer and reading of special tokens, perhaps from an earlier call.

    folder   may be lost at any moment; None: nothing is kept
    encode   -> [T] int64
    """
    if folder is None:
        return encode()
    identity = repr((tokenizer, special)).encode() + b"\0" + text.encode()
    path = folder / f"tokens-{hashlib.sha256(identity).hexdigest()[:32]}.npy"
    if not path.exists():
        with atomic_file(path) as fresh, open(fresh, "wb") as file:
            np.save(file, encode())
    return np.load(path)


def blocks_of(scoring: Scoring, columns: Mapping[str, np.ndarray]) -> Blocks | None:
    """Sums of each column over each block's tokens, blocks in the order of the text.

    columns   name -> [N] float64, one value a scored token: `nll`, and with a reference `kld` and `same_top`
    returns   also `units`, the words or bytes of each block, where the protocol counts those; None where a value is
              not finite: such a row has no statistic that could be paired
    """
    if not all(np.isfinite(values).all() for values in columns.values()):
        return None
    sums = {name: scoring.block_sums(values).tolist() for name, values in columns.items()}
    units = None if scoring.units is None else scoring.units.tolist()
    return Blocks(unit=scoring.block_unit, tokens=scoring.block_sizes.tolist(), units=units, **sums)
