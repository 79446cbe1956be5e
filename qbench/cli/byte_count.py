"""Bytes as people write them on a command line."""

import re

import click

from qbench.words.written import MOST_BYTES
from quant.errors import bounded

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}  # decimal, as in llama.cpp's gguf-split


class ByteCount(click.ParamType):
    """A whole number above 0, with a unit or without: 500M, 2G, 2GB."""

    name = "size"

    def convert(self, value, param, ctx) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)B?", value.strip().upper())
        num_bytes = int(match[1]) * UNITS[match[2]] if match else 0
        if not 0 < num_bytes <= MOST_BYTES:
            self.fail(f"{bounded(value, 40)!r} is no number of bytes; write it like 500M or 2G", param, ctx)
        return num_bytes


BYTE_COUNT = ByteCount()
