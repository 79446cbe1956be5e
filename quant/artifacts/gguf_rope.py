"""RoPE as GGUF keeps it: pairs of neighbouring rows, llama3 scaling as a tensor of factors, and YaRN as keys."""

import numpy as np

from quant.artifacts.gguf_keys import KeyReader
from quant.errors import InputError
from quant.models import ModelConfig, RopeConfig, yarn
from quant.models.rope import RopeScaling, fixed_factors
from quant.present import present

USUAL_CONTEXT = 8192  # of the models with factors, if the file does not say it
YARN = "yarn"
TYPE, FACTOR = "rope.scaling.type", "rope.scaling.factor"
ORIGINAL_CONTEXT = "rope.scaling.original_context_length"
BETAS = {"beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow"}
ATTENTION_FACTOR = "rope.scaling.attn_factor"  # in addition to the paper's, which llama.cpp always applies
LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"  # a tenth of mscale_all_dim, in files of latent attention


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


def yarn_metadata(config: ModelConfig) -> dict[str, int | float | str]:
    """GGUF key after "ARCH." -> value

    raises   InputError for magnitudes that llama.cpp does not compute
    """
    rope = config.rope
    metadata = {TYPE: YARN, FACTOR: rope.factor, ORIGINAL_CONTEXT: rope.original_max_position_embeddings}
    metadata |= {key: getattr(rope, name) for name, key in BETAS.items()}
    if not config.mla:
        return metadata | {ATTENTION_FACTOR: rope.rotation_scale / yarn.magnitude(rope.factor)}
    if not rope.mscale_all_dim or rope.mscale != rope.mscale_all_dim or rope.attention_factor is not None:
        raise InputError(
            f"yarn has mscale {rope.mscale}, mscale_all_dim {rope.mscale_all_dim} and attention_factor "
            f"{rope.attention_factor}; llama.cpp knows latent attention with equal mscales alone; write a Hugging Face "
            "directory"
        )
    return metadata | {LOG_MULTIPLIER: 0.1 * rope.mscale_all_dim}


def yarn_scaling(reader: KeyReader, has_mla: bool) -> RopeScaling:
    """The `rope_scaling` of a config.json.

    source   llama.cpp, llama_model_base::load_hparams(): without its key the original context is the trained one
    """
    factor = reader.require(FACTOR, float)
    context = reader.get(ORIGINAL_CONTEXT, int) or reader.require("context_length", int)
    scaling: RopeScaling = {"rope_type": YARN, "factor": factor, "original_max_position_embeddings": context}
    fast, slow = (reader.get(key, float) for key in BETAS.values())
    if fast is not None:
        scaling["beta_fast"] = fast
    if slow is not None:
        scaling["beta_slow"] = slow
    if has_mla:
        scaling["mscale"] = scaling["mscale_all_dim"] = _short(10 * reader.require(LOG_MULTIPLIER, float))
        return scaling
    relative = reader.get(ATTENTION_FACTOR, float)
    if relative is not None and relative != 1.0:  # 1 is the paper's magnitude, which follows from the factor
        scaling["attention_factor"] = relative * yarn.magnitude(factor)
    return scaling


def _short(value: float) -> float:
    """0.707 for 0.7070000000000001: a float32 has no more than 7 digits to give."""
    return float(f"{value:.7g}")
