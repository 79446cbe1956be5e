"""Text that tokenizers find hard, and a small tokenizer made from it."""

import pytest
from support.byte_tokenizer import trained_byte_level
from support.memory_source import MemorySource

from quant.source import TokenizerInfo

TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "It's 2024 and we've seen 12345 foxes; they'll come again!",
    "  spaces   and\nnew lines\t\ttabs",
    "naïve café “quotes” … 日本語 🦊",
]


@pytest.fixture
def memory_source():
    return MemorySource


@pytest.fixture(scope="session")
def texts():
    return TEXT


@pytest.fixture(scope="session")
def byte_level_tokenizer() -> TokenizerInfo:
    return trained_byte_level(TEXT * 3)
