"""`tokenizers`' own tokenizer of a model."""

from tokenizers import Tokenizer

from quant.errors import InputError
from quant.panics import panics_as
from quant.source import TokenizerInfo


def json_tokenizer(info: TokenizerInfo) -> Tokenizer:
    """raises InputError for JSON that is no tokenizer"""
    try:
        with panics_as(RuntimeError):
            return Tokenizer.from_str(info.json)
    except Exception as error:  # `tokenizers` raises bare Exception for any malformed JSON
        raise InputError(f"the tokenizer cannot be read: {error}; expected a tokenizer.json") from None
