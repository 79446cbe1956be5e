"""Contents of the cache of a model with latent attention: one row for all heads, or every head's keys and values."""

import os

from qbench.runtime.attention.mla_modes import COMPRESSED, ELIDED, get_mode
from qbench.runtime.caches.latent_format import LATENT_FORMATS, LatentFormat, Latents, latent_format
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.present import present

MODE_VARIABLE = "QBENCH_MLA_MODE"  # the mode of every cache that is not given one


def chosen_latents(
    config: ModelConfig, scheme: KVScheme | None, mode: str | None = None, *, impl: str = "auto"
) -> tuple[str | None, LatentFormat | None]:
    """The mode that is asked for, None for the fastest, and the format of rows, None for keys and values of heads.

    impl     of the model. "exact": if no mode is given, it is the same for any number of tokens, as the fastest
             depends on how many come at once, and each mode rounds its own way
    raises   InputError for an unknown mode, a mode of latents in a format without latents, and any mode for other
             attention
    """
    if config.mla is None:
        if mode is not None:
            raise InputError(f"mode {mode!r} is one of latent attention, which {config.architecture.name} has not")
        return None, None
    mode, fmt = mode or os.environ.get(MODE_VARIABLE) or None, latent_format(config, scheme)
    if mode is None:
        return ELIDED if impl == "exact" and fmt is not None else None, fmt
    if not get_mode(mode).keeps_latents:
        return mode, None
    if fmt is None:
        known = ", ".join(name for name in LATENT_FORMATS if name)
        raise InputError(
            f"mode {mode!r} keeps latents, which {present(scheme).format.name} does not hold here; known: {known}"
        )
    return mode, fmt


def uncached_latents(config: ModelConfig, scheme: KVScheme | None) -> Latents | None:
    """How a forward pass without a cache reads rows as the format would give them back; None: there are no rows."""
    _, fmt = (None, None) if scheme is None else chosen_latents(config, scheme)
    return None if fmt is None else Latents(fmt, present(config.mla).kv_lora_rank, in_kernels=False, mode=COMPRESSED)
