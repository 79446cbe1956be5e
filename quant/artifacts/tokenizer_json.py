"""`tokenizers` JSON that is known to load."""

from tokenizers import Tokenizer

from quant.errors import InputError
from quant.panics import panics_as


def load_tokenizer(text: str, where: str):
    """The `tokenizers.Tokenizer` of the text. raises InputError if it is not valid."""
    try:
        with panics_as(RuntimeError):
            return Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception for whatever it cannot parse
        raise InputError(f"{where}: not a tokenizer that the tokenizers library reads ({error})") from error
