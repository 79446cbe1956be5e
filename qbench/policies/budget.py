"""`Budget`: how much of a sequence a KV-cache policy may keep, in tokens, bytes or as a share."""

import re
from dataclasses import dataclass
from enum import Enum

from qbench.words.written import UNITS, parse_bytes, whole_number
from quant.errors import InputError

_BYTES = re.compile(r"\d+(?:\.\d+)?(?:[KMG]i?)?B")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)%|(\d+\.\d+)")


class Unit(Enum):
    TOKENS = "tokens"
    BYTES = "bytes"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount per sequence.

    amount  number of tokens, bytes over all layers, or a share above 0 and up to 1 of the tokens seen
    """

    amount: float
    unit: Unit = Unit.TOKENS

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """ "512", "64MiB", "25%" or "0.25" -> Budget; raises InputError for anything else"""
        if text.isdecimal() and text.strip("0"):
            return cls(whole_number(text, 1))
        if _BYTES.fullmatch(text):
            return cls(parse_bytes(text), Unit.BYTES)
        if found := _SHARE.fullmatch(text):
            share = float(found[1]) / 100 if found[1] else float(found[2])
            if not 0 < share <= 1:
                raise InputError(f"budget {text!r}: expected a share above 0 % and up to 100 %")
            return cls(share, Unit.SHARE)
        raise InputError(f"budget {text!r}: expected tokens as in 512, bytes as in 64MiB, or a share as in 25%")

    def __str__(self) -> str:
        if self.unit is Unit.SHARE:
            return f"{100 * self.amount:g}%"
        if self.unit is Unit.TOKENS:
            return str(int(self.amount))
        for name in ("Gi", "Mi", "Ki", "G", "M", "k"):
            if self.amount % UNITS[name] == 0:
                return f"{int(self.amount) // UNITS[name]}{name.upper() if name == 'k' else name}B"
        return f"{int(self.amount)}B"

    def in_tokens(self, bytes_per_token: float) -> "Budget":
        """The same budget without bytes.

        bytes_per_token  keys and values of one token over all layers
        raises           InputError if not even one token fits
        """
        if self.unit is not Unit.BYTES:
            return self
        if self.amount < bytes_per_token:
            raise InputError(f"budget {self}: one token takes {bytes_per_token:g} bytes; give more")
        return Budget(int(self.amount // bytes_per_token))

    def of(self, num_seen: int) -> int:
        """Number of tokens that a sequence of `num_seen` tokens may keep; convert bytes by `in_tokens` first."""
        assert self.unit is not Unit.BYTES
        return max(1, int(self.amount * num_seen)) if self.unit is Unit.SHARE else int(self.amount)
