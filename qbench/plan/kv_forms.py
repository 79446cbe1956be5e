"""Bytes of one token's keys and values in each form of attention, at 16 bits per number as published tables have it."""

from quant.models import ModelConfig

HALF_BYTES = 2


def attention_form(config: ModelConfig) -> str:
    """ "mha", "gqa", "mqa" or "mla": the form that the model has"""
    if config.mla:
        return "mla"
    if config.num_kv_heads == config.num_heads:
        return "mha"
    return "mqa" if config.num_kv_heads == 1 else "gqa"


def kv_forms(config: ModelConfig) -> dict[str, int]:
    """Form -> bytes of one token over all layers, for the model's own number of heads and sizes of them.

    mha   a key and a value for every head; for a model with latent attention, its cache decompressed
    gqa   for as many heads as the model has keys for
    mqa   for one head
    mla   one latent and one rotated key for all heads
    source   DeepSeek-V2, arXiv:2405.04434, section 2.1.4
    """
    value_dim = config.mla.v_head_dim if config.mla else config.head_dim
    pair = config.head_dim + value_dim  # of a head: its key and its value
    numbers = {"mha": config.num_heads * pair, "mqa": pair}
    if config.mla:
        numbers["mla"] = config.mla.latent_size
    elif attention_form(config) == "gqa":
        numbers["gqa"] = config.num_kv_heads * pair
    return {form: HALF_BYTES * config.num_layers * numbers[form] for form in FORMS if form in numbers}


FORMS = ("mha", "gqa", "mqa", "mla")


def windowed_share(config: ModelConfig, context: int) -> float:
    """Share of a sequence's keys and values that a cache must keep if it forgets tokens outside every window."""
    if not config.windows:
        return 1.0
    return sum(min(context, window or context) for window in config.windows) / (context * config.num_layers)
