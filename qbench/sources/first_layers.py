"""The first layers of a model: enough to measure ratios of speeds, because all layers have the same shape."""

from quant.errors import InputError
from quant.models import ModelConfig
from quant.models.tensors import split_name
from quant.source import Source, SourceView


class FirstLayers(SourceView):
    """`source` with its first decoder layers alone: not a model to use, but one to measure.

    raises   InputError for more layers than there are
    """

    def __init__(self, source: Source, num_layers: int) -> None:
        super().__init__(source)
        model = ModelConfig.of(source)
        have = model.num_layers
        if not 1 <= num_layers <= have:
            raise InputError(f"{source.spec} has {have} layers; got {num_layers} to measure")
        self.config = {**source.config, model.architecture.own_key("num_hidden_layers"): num_layers}
        self.tensors = {name: info for name, info in source.tensors.items() if (split_name(name)[1] or 0) < num_layers}
