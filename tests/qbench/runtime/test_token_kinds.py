"""Special tokens and punctuation, found in tokenizers whose tokens are known."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.byte_tokenizer import BOS, byte_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.token_kinds import token_kinds
from quant.source import TokenizerInfo

PIECES = ["a", ".", "▁.", "...", "▁", "'s", "¿", "。", "a.", "+", "!?", "é", "3"]


def of_pieces() -> TokenizerInfo:
    """SentencePiece-like: a word begins with ▁."""
    tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(PIECES)}, unk_token="a"))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("!", special=True)])
    return TokenizerInfo(tokenizer.to_str(), bos_token_id=len(PIECES), eos_token_id=0, add_bos=True)


def test_pieces_of_marks_alone_are_punctuation() -> None:
    kinds = token_kinds(of_pieces())
    assert [PIECES[token] for token in kinds.punctuation] == [".", "▁.", "...", "¿", "。", "+", "!?"]
    assert kinds.special.tolist() == [0, len(PIECES), len(PIECES) + 1]


def test_special_bytes_and_punctuation_are_found() -> None:
    tokenizer = byte_tokenizer()
    kinds = token_kinds(tokenizer.info)
    assert kinds.special.tolist() == [BOS]
    assert sorted(tokenizer.decode(kinds.punctuation.tolist())) == sorted("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def test_a_model_without_a_tokenizer_has_no_kinds() -> None:
    kinds = token_kinds(None)
    assert not len(kinds.special) and not len(kinds.punctuation)


@pytest.mark.parametrize("name", ["fastgen", "h2o"])
def test_a_policy_gets_the_kinds_that_it_reads(name: str) -> None:
    config = small_config("llama", vocab_size=257)
    source = ArraySource(config, random_weights(config), tokenizer=byte_tokenizer().info)
    cache = load_model(source, RunOptions(policy=name), impl="reference").new_cache(1)
    expected = token_kinds(source.tokenizer if name == "fastgen" else None)
    assert torch.equal(cache.evictor.token_kinds.special, expected.special)
    assert torch.equal(cache.evictor.token_kinds.punctuation, expected.punctuation)
