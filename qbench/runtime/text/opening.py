"""What a text begins with: a prompt, as a decoder continues it and as an encoder-decoder answers it."""

from dataclasses import dataclass

from qbench.run_options import RunOptions
from qbench.runtime.encoder_decoder import Conditioned, load_encoder_decoder
from qbench.runtime.load import load_model
from qbench.runtime.model import Model
from qbench.runtime.text.tokenizer import Tokenizer
from quant.models.encoder_decoder import EncoderDecoderConfig, is_encoder_decoder
from quant.source import Source


@dataclass(frozen=True, slots=True)
class Opening:
    """tokens: what `model` is given first; shown: those of them that are text before the new one"""

    model: Model | Conditioned
    tokens: list[int]
    shown: list[int]


def open_text(source: Source, tokenizer: Tokenizer, prompt: str, threads: int | None = None) -> Opening:
    """The model, loaded, and the prompt where it reads it.

    raises   InputError for an empty prompt where there is no BOS token to begin with
    """
    if not is_encoder_decoder(source.config):
        tokens = tokenizer.encode(prompt, add_bos=None if prompt else True)
        decoder = load_model(source, RunOptions(threads=threads))
        assert isinstance(decoder, Model)  # on the CPU
        return Opening(decoder, tokens, tokens)
    config = EncoderDecoderConfig.of(source)
    tokens = tokenizer.encode(prompt, add_bos=False)
    ends = config.eos_token_ids[:1]  # every input of the training ended with it
    model = load_encoder_decoder(source, threads=threads)
    return Opening(model.condition([[*tokens, *ends]]), [config.start_token_id], [])
