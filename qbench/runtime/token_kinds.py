"""`tokenizers`' own tokenizer of a model; its special tokens and punctuation, for KV-cache policies."""

import string
import unicodedata

import torch
from tokenizers import Tokenizer

from qbench.policies import TokenKinds
from quant.artifacts.tokenizer_json import parse_tokenizer
from quant.errors import InputError
from quant.source import TokenizerInfo


def token_kinds(info: TokenizerInfo | None) -> TokenKinds:
    """Ids of control tokens, and of tokens whose text is punctuation marks only; None: a model without a tokenizer

    raises   InputError if the tokenizer cannot be read
    """
    if info is None:
        return TokenKinds()
    tokenizer = json_tokenizer(info)
    special = {token for token, each in tokenizer.get_added_tokens_decoder().items() if each.special}
    special |= {token for token in (info.bos_token_id, info.eos_token_id) if token is not None}
    texts = tokenizer.decode_batch([[token] for token in range(tokenizer.get_vocab_size())])
    punctuation = [token for token, text in enumerate(texts) if token not in special and _is_punctuation(text)]
    return TokenKinds(torch.tensor(sorted(special), dtype=torch.int64), torch.tensor(punctuation, dtype=torch.int64))


def _is_punctuation(text: str) -> bool:
    marks = text.strip()
    return bool(marks) and all(mark in string.punctuation or unicodedata.category(mark)[0] == "P" for mark in marks)


def json_tokenizer(info: TokenizerInfo) -> Tokenizer:
    """`tokenizers`' own tokenizer of a model. raises InputError for JSON that is no tokenizer"""
    try:
        return parse_tokenizer(info.json)
    except Exception as error:  # `tokenizers` raises bare Exception for any malformed JSON
        raise InputError(f"the tokenizer cannot be read: {error}; expected a tokenizer.json") from None
