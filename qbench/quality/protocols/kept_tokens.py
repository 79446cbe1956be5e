"""A text's tokens, kept in a folder: of the cases of a sweep that share a tokenizer, one encodes the text."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from quant.atomic import atomic_file
from quant.source import TokenizerInfo


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
