"""The models that have names, for `qbench models`."""

from dataclasses import dataclass

from qbench import real
from qbench.reference import MODELS
from qbench.sources.large_shapes import LARGE_SHAPES
from qbench.sources.rand import PREFIX as RAND
from qbench.sources.rand import RandomSource
from qbench.sources.reference import PREFIX as REF
from qbench.sources.reference import open_reference
from qbench.sources.shape import PREFIX as SHAPE
from qbench.sources.shape import ShapeSource
from qbench.sources.shapes import SHAPES
from quant.artifacts.gguf_reader import GGUFSource
from quant.errors import InputError
from quant.json_data import JsonData
from quant.models import ModelConfig
from quant.sizes import num_weights


@dataclass(frozen=True, slots=True)
class ListedModel(JsonData):
    """kind     "ref", "real", "rand" or "shape"
    params   number of weights; None for a model whose file is not here
    """

    spec: str
    kind: str
    params: int | None
    description: str


def list_models() -> list[ListedModel]:
    """One row per model that has a name."""
    rows = [_reference_row(REF + model.name, model.description) for model in MODELS.values()]
    rows += [_real_row(real.PREFIX + name, file) for name, file in real.MODELS.items()]
    rows += [_shape_row(RandomSource(RAND + name), "rand", "random weights") for name in SHAPES]
    return rows + [_shape_row(ShapeSource(SHAPE + name), "shape", "sizes for plans") for name in LARGE_SHAPES]


def _reference_row(spec: str, description: str) -> ListedModel:
    try:
        params = num_weights(open_reference(spec).tensors)
    except InputError as error:
        params, description = None, f"{description} (not usable: {error})"
    return ListedModel(spec, "ref", params, description)


def _real_row(spec: str, file: real.RealFile) -> ListedModel:
    path = real.folder() / file.file
    if not path.is_file():
        return ListedModel(spec, "real", None, f"{file.about}; `make real` fetches it")
    return ListedModel(spec, "real", num_weights(GGUFSource(path, spec).tensors), f"{file.about}, off its file's grid")


def _shape_row(source: ShapeSource, kind: str, what: str) -> ListedModel:
    config = ModelConfig.of(source)
    description = (
        f"{what}: {config.num_layers} layers of {config.hidden_size}, "
        f"vocabulary {config.vocab_size}, context {config.max_positions}"
    )
    return ListedModel(source.spec, kind, num_weights(source.tensors), description)
