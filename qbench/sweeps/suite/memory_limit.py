"""Memory limits of a suite: bytes as people write them, a share of the weights, or the word for no limit."""

from pathlib import Path

from qbench.words.written import parse_bytes, parse_share

NO_LIMIT = "none"


def check_limit(text: str) -> None:
    """raises InputError for text that is no limit"""
    if text == NO_LIMIT:
        return
    if parse_share(text) is None:
        parse_bytes(text)


def limit_bytes(text: str, artifact: Path) -> int:
    """Bytes of a limit. artifact: the file or folder of the weights, of which "40%" is a share"""
    share = parse_share(text)
    if share is None:
        return parse_bytes(text)
    files = [artifact] if artifact.is_file() else [path for path in artifact.iterdir() if path.is_file()]
    return int(share * sum(path.stat().st_size for path in files if path.suffix in (".gguf", ".safetensors")))
