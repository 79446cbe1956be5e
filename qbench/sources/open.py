"""From a model spec to a Source: a directory, a file, a name, a download, or only its first layers."""

from collections.abc import Callable
from pathlib import Path

from qbench import real
from qbench.sources import rand, reference, shape
from qbench.sources.real import open_real
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.hf_encoder_decoder import EncoderDecoderSource
from quant.artifacts.hf_reader import CONFIG, HFSource
from quant.errors import InputError
from quant.json_file import read_json
from quant.models import ModelConfig
from quant.models.encoder_decoder import is_encoder_decoder
from quant.models.tensors import split_name
from quant.source import Source, SourceView

FORMS = "a directory, a .gguf file, ref:NAME, real:NAME, rand:SHAPE, shape:SHAPE (for plans) or hf:ORG/NAME[@REVISION]"
HUB = "hf:"
HUB_FILES = [
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
]


def open_source(spec: str) -> Source:
    """The model that `spec` names; its weights stay on the disk until they are read.

    raises   InputError if the spec is of no known form, or its model is missing or incomplete
    """
    for prefix, opener in OPENERS.items():
        if spec.startswith(prefix):
            return opener(spec)
    path = Path(spec).expanduser()
    if path.is_dir():
        return _open_dir(spec, path)
    if path.is_file():
        return _open_gguf(spec, path)
    raise InputError(f"model {spec!r} is not there; expected {FORMS} (`qbench models` lists names)")


def _open_gguf(spec: str, path: Path) -> Source:
    if path.suffix != ".gguf":
        raise InputError(f"{spec}: a single file must be GGUF with the suffix .gguf; a model is {FORMS}")
    return GGUFSource(path, spec)


def _open_dir(spec: str, path: Path) -> Source:
    ggufs = sorted(path.glob("*.gguf"))
    if ggufs and not (path / CONFIG).exists():
        raise InputError(f"{spec}: a directory of GGUF files; name one of them, e.g. {ggufs[0]}")
    if not (path / CONFIG).exists() and (path / "adapter_config.json").exists():
        raise InputError(
            f"{spec}: an adapter without its model: merge it into its base model (merge_and_unload of peft), and name "
            "the result"
        )
    if (path / CONFIG).exists() and is_encoder_decoder(read_json(path / CONFIG)):
        return EncoderDecoderSource(path, spec)
    return HFSource(path, spec)


def _open_hub(spec: str) -> Source:
    return _open_dir(spec, download(spec))


OPENERS: dict[str, Callable[[str], Source]] = {
    reference.PREFIX: reference.open_reference,
    real.PREFIX: open_real,
    rand.PREFIX: rand.RandomSource,
    shape.PREFIX: shape.ShapeSource,
    HUB: _open_hub,
}


def download(spec: str) -> Path:
    """The local directory of the model. raises InputError if it cannot be had, whatever the reason."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    name, _, revision = spec.removeprefix(HUB).partition("@")
    if name.count("/") != 1:
        raise InputError(f"{spec!r}: expected hf:ORG/NAME or hf:ORG/NAME@REVISION, e.g. hf:HuggingFaceTB/SmolLM2-135M")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=HUB_FILES))
    except HFValidationError as error:
        raise InputError(f"{spec!r}: no such name can be on the Hugging Face hub ({_line(error)})") from error
    except HfHubHTTPError as error:
        raise InputError(f"{spec}: the hub refused: {_line(error)}") from error
    except OSError as error:  # LocalEntryNotFoundError and the errors of sockets among them
        raise InputError(
            f"{spec}: cannot download ({_line(error)}); go online once, or give a directory that holds the model"
        ) from error


def _line(error: Exception) -> str:
    """The first line that says something; the library writes several."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


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
