"""Memory limits of a suite: bytes as people write them, a share of the weights, or the word for no limit."""

from pathlib import Path

from qbench.byte_text import parse_bytes
from quant.errors import InputError

NO_LIMIT = "none"


def check_limit(text: str) -> None:
    """raises InputError for text that is no limit"""
    if text == NO_LIMIT:
        return
    share = _share(text)
    if share is None:
        parse_bytes(text)
    elif share <= 0:
        raise InputError(f"memory {text!r}: expected more than 0%, or a size such as 2GiB")


def limit_bytes(text: str, artifact: Path) -> int:
    """Bytes of a limit. artifact: the file or folder of the weights, of which "40%" is a share"""
    share = _share(text)
    if share is None:
        return parse_bytes(text)
    files = [artifact] if artifact.is_file() else [path for path in artifact.iterdir() if path.is_file()]
    return int(share * sum(path.stat().st_size for path in files if path.suffix in (".gguf", ".safetensors")))


def _share(text: str) -> float | None:
    """ "40%" -> 0.4; None for other text"""
    number = text.removesuffix("%")
    if number == text:
        return None
    try:
        return float(number) / 100
    except ValueError as error:
        raise InputError(f"memory {text!r}: expected a share such as 40%, or a size such as 2GiB") from error
