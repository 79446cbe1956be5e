"""`tokenizers`' own tokenizer of a model."""

from tokenizers import Tokenizer

from quant.artifacts.tokenizer_json import parse_tokenizer
from quant.errors import InputError
from quant.source import TokenizerInfo


def json_tokenizer(info: TokenizerInfo) -> Tokenizer:
    """raises InputError for JSON that is no tokenizer"""
    try:
        return parse_tokenizer(info.json)
    except Exception as error:  # `tokenizers` raises bare Exception for any malformed JSON
        raise InputError(f"the tokenizer cannot be read: {error}; expected a tokenizer.json") from None
