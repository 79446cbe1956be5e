"""Names that configs give the function inside a feed-forward net, and which function each means."""

from quant.errors import InputError, shown
from quant.models.values import Config, spelled

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def activation_of(config: Config) -> str:
    """raises InputError for a function that is not supported"""
    name = config.get("hidden_act")
    name = "silu" if name is None else name
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise InputError(
            f"{spelled(config, 'hidden_act')} {shown(name)} is not supported; known: {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]
