"""RoPE as GGUF keeps it: pairs of neighbouring rows, and llama3 scaling as a tensor of factors."""

import numpy as np

from quant.errors import InputError
from quant.models import RopeConfig
from quant.models.rope import RopeScaling
from quant.present import present


def llama3_scaling(factors: np.ndarray, theta: float, original_context: int | None, where: str) -> RopeScaling:
    """The `rope_scaling` whose `RopeConfig.frequency_divisors` are these, checked by computing them again.

    GGUF does not keep the parameters. Published models all use low 1 and high 4; the context they were
    trained on is 8192 unless the file says otherwise.
    raises   InputError if no such scaling gives these factors
    """
    for original in dict.fromkeys((original_context or 8192, 8192)):
        try:
            rope = RopeConfig(
                "llama3", theta, factor=float(factors.max()), original_max_position_embeddings=original
            )  # low and high factors: the defaults
        except InputError as error:
            raise InputError(f"{where}: tensor rope_freqs.weight: {error}") from error
        with np.errstate(all="ignore"):  # a corrupt file's numbers; their result matches nothing
            again = rope.frequency_divisors(2 * len(factors))
        # The converter of others computes in float32: a few roundings of 2**-24 through pow and a quotient.
        if np.allclose(again, factors, rtol=2**-16, atol=0):
            return present(rope.hf_scaling())
    raise InputError(f"{where}: tensor rope_freqs.weight holds factors that no llama3 scaling gives")


def rows_to_pairs(num_rows: int, num_heads: int) -> np.ndarray:
    """Row order for GGUF: within each head, row i and row i + head_dim / 2 become neighbours.

    Hugging Face turns (x[i], x[i + head_dim / 2]) together; llama.cpp turns (x[2i], x[2i + 1]).
    returns  [num_rows] int64, index for `QTensor.take_rows`
    """
    return np.arange(num_rows).reshape(num_heads, 2, -1).swapaxes(1, 2).reshape(-1)


def rows_to_halves(num_rows: int, num_heads: int) -> np.ndarray:
    """The inverse of `rows_to_pairs`."""
    return np.argsort(rows_to_pairs(num_rows, num_heads))
