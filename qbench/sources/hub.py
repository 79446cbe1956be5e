"""`hf:ORG/NAME[@REVISION]`: a model that huggingface_hub downloads once and keeps in its own cache."""

from pathlib import Path

from quant.errors import InputError

PREFIX = "hf:"
FILES = [
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
]


def download(spec: str) -> Path:
    """The local directory of the model. raises InputError if it cannot be had, whatever the reason."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    name, _, revision = spec.removeprefix(PREFIX).partition("@")
    if name.count("/") != 1:
        raise InputError(f"{spec!r}: expected hf:ORG/NAME or hf:ORG/NAME@REVISION, e.g. hf:HuggingFaceTB/SmolLM2-135M")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=FILES))
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
