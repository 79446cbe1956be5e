"""Text files that users name."""

from pathlib import Path

from quant.errors import InputError
from quant.regular_file import read_regular_text


def read_text_file(path: str | Path, content: str) -> str:
    """The UTF-8 text of a file, byte for byte: a carriage return is scored like any character.

    content  its name in messages, such as "chat template"
    raises   InputError for a file that cannot be read
    """
    try:
        return read_regular_text(path, newline="")
    except OSError as error:
        raise InputError(f"{path}: cannot read the {content}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        noun = content.split()[-1]
        raise InputError(f"{path}: not UTF-8 at byte {error.start}; convert the {noun} to UTF-8") from error
