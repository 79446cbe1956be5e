"""The beginning of a text: a prompt that a decoder continues or an encoder-decoder answers."""

from dataclasses import dataclass

from qbench.run.cache_spec import DEFAULT_CACHE
from qbench.run.options import DEFAULTS, RunOptions
from qbench.runtime.encoder_decoder import Conditioned, load_encoder_decoder
from qbench.runtime.load import load_model
from qbench.runtime.model import Model
from qbench.runtime.offload import Use, check_limit
from qbench.runtime.text.generate import num_new_tokens
from qbench.runtime.text.tokenizer import Tokenizer
from quant.errors import InputError
from quant.models import ModelConfig
from quant.models.encoder_decoder import EncoderDecoderConfig, is_encoder_decoder
from quant.source import Source


@dataclass(frozen=True, slots=True)
class Opening:
    """tokens: the first input of `model`; shown: those of them that are text before the new one"""

    model: Model | Conditioned
    tokens: list[int]
    shown: list[int]


def open_text(
    source: Source, tokenizer: Tokenizer, prompt: str, options: RunOptions = DEFAULTS, num_new: int | None = 0
) -> Opening:
    """The model, loaded, and the prompt in the form that it reads.

    num_new  tokens that will follow; None: as many as `generate` adds by default
    options  of the decoder; an encoder-decoder has a cache of its own kind, of policy full
    raises   InputError for an empty prompt if there is no BOS token to begin with
    """
    if not is_encoder_decoder(source.config):
        tokens = tokenizer.encode(prompt, add_bos=None if prompt else True)
        capacity = len(tokens) + num_new_tokens(num_new, len(tokens), ModelConfig.of(source).max_positions)
        check_limit(source, options, Use(len(tokens), capacity=capacity))
        decoder = load_model(source, options)
        assert isinstance(decoder, Model)  # on the CPU
        return Opening(decoder, tokens, tokens)
    if options.cache_spec != DEFAULT_CACHE:
        raise InputError(
            f"{source.spec} is an encoder-decoder, whose cache is dynamic and full; got {options.cache_spec}"
        )
    config = EncoderDecoderConfig.of(source)
    tokens = tokenizer.encode(prompt, add_bos=False)
    ends = config.eos_token_ids[:1]  # every input of the training ended with it
    model = load_encoder_decoder(source, threads=options.threads)
    return Opening(model.condition([[*tokens, *ends]]), [config.start_token_id], [])
