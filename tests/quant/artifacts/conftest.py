"""Text that tokenizers find hard, and a small tokenizer made from it."""

import pytest
from support.memory_source import MemorySource
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

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
    """A byte-level BPE of 300 tokens with an end token, as GPT-2 is made."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    return TokenizerInfo(tokenizer.to_str(), 0, 0, False)
