"""Bytes as people write them on a command line."""

import re

import click

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}  # decimal, as in llama.cpp's gguf-split


class ByteCount(click.ParamType):
    """A whole number above 0, with a unit or without: 500M, 2G, 2GB."""

    name = "size"

    def convert(self, value, param, ctx) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+)([KMGT]?)B?", value.strip().upper())
        if match is None or not int(match[1]):
            self.fail(f"{value!r} is no number of bytes; write it like 500M or 2G", param, ctx)
        return int(match[1]) * UNITS[match[2]]


BYTE_COUNT = ByteCount()
