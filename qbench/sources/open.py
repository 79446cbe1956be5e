"""From a model spec to a Source."""

from collections.abc import Callable
from pathlib import Path

from qbench.sources import hub, rand, reference, shape
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.hf_encoder_decoder import EncoderDecoderSource
from quant.artifacts.hf_reader import CONFIG, HFSource
from quant.errors import InputError
from quant.json_file import read_json
from quant.models.encoder_decoder import is_encoder_decoder
from quant.source import Source

FORMS = "a directory, a .gguf file, ref:NAME, rand:SHAPE, shape:SHAPE (for plans) or hf:ORG/NAME[@REVISION]"


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
    return _open_dir(spec, hub.download(spec))


OPENERS: dict[str, Callable[[str], Source]] = {
    reference.PREFIX: reference.open_reference,
    rand.PREFIX: rand.RandomSource,
    shape.PREFIX: shape.ShapeSource,
    hub.PREFIX: _open_hub,
}
