"""A digest for each full page of a text, that covers all tokens up to its end."""

import hashlib
from array import array
from collections.abc import Sequence

# 128 bits: of a billion pages two share a digest with a probability of 10**18 / 2**129, about 1.5e-21.
DIGEST_BYTES = 16


class HashChain:
    """digest of page i = hash(digest of page i - 1, its tokens), and that of page -1 = hash(version).

    So equal digests mean equal prefixes of equal versions, and one look-up shows whether a whole prefix is held.
    """

    def __init__(self, page_size: int, version: str | None) -> None:
        self.page_size = page_size
        self.root = _digest(b"" if version is None else b"version " + version.encode())
        self._digests: list[bytes] = []

    def digests(self, tokens: Sequence[int]) -> list[bytes]:
        """One for each full page of `tokens`, which may only have grown since the last call."""
        known, size = self._digests, self.page_size
        for start in range(len(known) * size, len(tokens) - size + 1, size):
            known.append(_after(known[-1] if known else self.root, tokens[start : start + size]))
        return known

    def last(self, tokens: Sequence[int]) -> bytes:
        """Digest of all `tokens`, whose last page need not be full."""
        num_full = len(tokens) // self.page_size
        before = self.digests(tokens)[num_full - 1] if num_full else self.root
        rest = tokens[num_full * self.page_size :]
        return _after(before, rest) if rest else before


def _after(before: bytes, tokens: Sequence[int]) -> bytes:
    return _digest(before + array("q", tokens).tobytes())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
