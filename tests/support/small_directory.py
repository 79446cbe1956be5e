"""Directories of small random models of any architecture that read and write text."""

from pathlib import Path
from typing import Any

from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact

from qbench.sources import open_source

LENGTHS = {"bloom": "seq_length", "gpt2": "n_positions"}
CONTEXT = 1024


def write_small(kind: str, out: Path, **changes: Any) -> Path:
    """A directory of a random model of this architecture with the tokenizer of `ref:llama` and 1024 positions.

    kind   one of `support.architectures.KINDS`
    """
    words = open_source("ref:llama")
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"))
    length = {LENGTHS.get(kind, "max_position_embeddings"): CONTEXT}
    config = small_config(kind, **{"vocab_size": words.config["vocab_size"], **ends, **length, **changes})
    return write_artifact(ArraySource(config, random_weights(config), tokenizer=words.tokenizer), out)
