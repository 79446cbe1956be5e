from collections.abc import Callable

import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from quant.kv.source import KVSource


@pytest.fixture(scope="session")
def load() -> Callable[..., Model]:
    """A small model of K-quants, its keys and values in a format; products would depend on the number of tokens."""
    return _load


@pytest.fixture(scope="session")
def model() -> Model:
    return _load()


def _load(kv: str | None = None) -> Model:
    config = small_config(hidden_size=256, intermediate_size=256, vocab_size=300, eos_token_id=299)
    weights = random_weights(config)
    formats = {name: "q4_k" for name, weight in weights.items() if weight.ndim == 2}
    source = ArraySource(config, weights, formats)
    return load_model(source if kv is None else KVSource(source, kv), RunOptions(compute="exact"))
