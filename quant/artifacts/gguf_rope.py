"""RoPE as GGUF keeps it: pairs of neighbouring rows, and llama3 scaling as a tensor of factors."""

import numpy as np

from quant.errors import InputError
from quant.models import RopeConfig
from quant.models.rope import RopeScaling, fixed_factors
from quant.present import present

USUAL_CONTEXT = 8192  # of the models with factors, if the file does not say it


def scaling_of_factors(factors: np.ndarray, theta: float, contexts: tuple[int, ...]) -> RopeScaling:
    """The `rope_scaling` of a tensor rope_freqs.weight: of type llama3 if its usual parameters give these factors.

    GGUF does not keep the parameters. Most models have low 1 and high 4. Factors of others are taken as they are.

    factors    [head_dim // 2] float32
    contexts   that the model may have been trained on, the likeliest first and its longest text last
    """
    for original in dict.fromkeys((*contexts, USUAL_CONTEXT)):
        try:
            rope = RopeConfig(
                "llama3", theta, factor=float(factors.max()), original_max_position_embeddings=original
            )  # low and high factors: the defaults
        except InputError:
            continue
        with np.errstate(all="ignore"):  # a corrupt file's numbers; their result matches nothing
            again = rope.frequency_divisors(2 * len(factors))
        # The converter of others computes in float32: a few roundings of 2**-24 through pow and a quotient.
        if np.allclose(again, factors, rtol=2**-16, atol=0):
            return present(rope.hf_scaling())
    return fixed_factors(factors, contexts[-1])


def rows_to_pairs(num_rows: int, num_heads: int) -> np.ndarray:
    """Row order for GGUF: within each head, row i and row i + head_dim / 2 become neighbours.

    Hugging Face turns (x[i], x[i + head_dim / 2]) together; llama.cpp turns (x[2i], x[2i + 1]).
    returns  [num_rows] int64, index for `QTensor.take_rows`
    """
    return np.arange(num_rows).reshape(num_heads, 2, -1).swapaxes(1, 2).reshape(-1)


def rows_to_halves(num_rows: int, num_heads: int) -> np.ndarray:
    """The inverse of `rows_to_pairs`."""
    return np.argsort(rows_to_pairs(num_rows, num_heads))
