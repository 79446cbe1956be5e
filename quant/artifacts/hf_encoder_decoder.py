"""A Hugging Face directory of an encoder-decoder as a Source: float weights alone."""

from pathlib import Path

from quant.artifacts.hf_reader import (
    CONFIG,
    TEXT_FILES,
    files_of_added_tokens,
    folder_fingerprint,
    read_stored,
    stored_info,
)
from quant.artifacts.hf_tokenizer import TOKENIZER, TOKENIZER_CONFIG, read_tokenizer
from quant.errors import InputError
from quant.json_file import read_json
from quant.models.encoder_decoder import HEAD, LEFTOVERS, EncoderDecoderConfig, encoder_decoder_tensors
from quant.qtensor import QTensor
from quant.regular_file import check_links
from quant.safetensors.folder import read_tensors
from quant.source import LocalSource


class EncoderDecoderSource(LocalSource):
    """Source over a directory; config, tokenizer and all headers are checked when it opens.

    raises   InputError, naming the file, for all that is not a whole encoder-decoder
    """

    def __init__(self, path: Path, spec: str | None = None) -> None:
        super().__init__(path, spec)
        check_links(path, TEXT_FILES)
        self.config = read_json(path / CONFIG)
        expected = encoder_decoder_tensors(EncoderDecoderConfig.from_hf(self.config, str(path / CONFIG)))
        self._stored = read_tensors(path)
        self.tensors = {
            name: stored_info(self._stored.get(name), name, shape, path) for name, shape in expected.items()
        }
        unknown = set(self._stored) - set(expected) - {*LEFTOVERS, f"{HEAD}.weight"}
        if unknown:
            raise InputError(f"{path}: tensor {min(unknown)!r} is none of this architecture's; it would be lost")
        self.tokenizer = read_tokenizer(path, self.config)

    def read(self, name: str) -> QTensor:
        return read_stored(self._stored[name])

    def fingerprint(self) -> str:
        return folder_fingerprint(
            self.path, [CONFIG, TOKENIZER, TOKENIZER_CONFIG, *files_of_added_tokens(self.tokenizer)]
        )
