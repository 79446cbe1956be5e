"""The tensors a config implies, checked against a source's tensors before any byte is read."""

from collections.abc import Mapping

from quant import models
from quant.errors import InputError
from quant.models import ExpectedTensor, ModelConfig, expected_tensors, is_leftover
from quant.source import TensorInfo

# The modules outside the layers, as their tensors are named without ".weight".
EMBEDDING = models.EMBEDDING.removesuffix(".weight")
FINAL_NORM = models.FINAL_NORM.removesuffix(".weight")
HEAD = models.HEAD.removesuffix(".weight")


def check_tensors(config: ModelConfig, tensors: Mapping[str, TensorInfo]) -> dict[str, ExpectedTensor]:
    """The tensors that the config implies.

    raises   InputError for one that is missing, of the wrong shape, or that the config has no place for
    """
    expected = expected_tensors(config)
    for name, want in expected.items():
        if name not in tensors:
            raise InputError(f"tensor {name} is missing, expected shape {list(want.shape)}")
        if tensors[name].shape != want.shape:
            raise InputError(f"tensor {name} has shape {list(tensors[name].shape)}, expected {list(want.shape)}")
    for name in tensors:
        if name not in expected and not is_leftover(name, config):
            raise InputError(f"tensor {name} has no place in a {config.architecture.name} of this config")
    return expected
