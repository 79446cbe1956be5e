"""`Target`: one kind of fuzzed input, and the smallest model that such an input can be a part of."""

from abc import ABC, abstractmethod
from pathlib import Path
from random import Random

import torch
from fuzz.mutations import mutate_json
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.byte_tokenizer import BOS, byte_tokenizer

from qbench.run.options import RunOptions
from qbench.runtime import Tokenizer, load_model
from quant.errors import InputError

OPTIONS = RunOptions(threads=1)
ACCEPTED, FORWARD = "accepted", "forward"
REFUSALS = (InputError, OSError, NotImplementedError)  # errors for which the command line exits with status 2


class Target(ABC):
    """folder: to write in. Seeds are made once; a mutation is a function of its random numbers and a seed."""

    name: str
    at_once: int = 1  # inputs that may run together, joined by newlines

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def seeds(self) -> list[bytes]: ...

    def mutate(self, rng: Random, seed: bytes) -> bytes:
        return mutate_json(rng, seed)

    def groups(self, inputs: list[bytes]) -> list[list[bytes]]:
        """Inputs that run together; a group that is not accepted runs again in halves."""
        return [[raw] for raw in inputs]

    @abstractmethod
    def run(self, raw: bytes) -> str:
        """ACCEPTED, or FORWARD if a model ran. raises one of REFUSALS for refused input; others are faults"""


def tiny_source(kind: str = "llama") -> ArraySource:
    """Two layers of 64 inputs: the smallest model that quantizes and runs."""
    config = small_config(kind, vocab_size=BOS + 1, max_position_embeddings=64, eos_token_id=None)
    return ArraySource(config, random_weights(config), tokenizer=byte_tokenizer().info)


def forward(source) -> str:
    """Load the model and run a few tokens of a text through it."""
    if source.tokenizer is not None:
        Tokenizer(source.tokenizer).encode("a text")
    model = load_model(source, OPTIONS)
    model(torch.tensor([[0, 1, 2]]), model.new_cache(capacity=8))
    return FORWARD
