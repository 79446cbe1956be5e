"""The family of a recipe: the method that rounds the weights."""

import re
from functools import cache

from quant.formats import BLOCK_FORMATS

# The first that matches the start of a recipe's name.
FAMILIES = (
    (r"(f32|f16|bf16)$", "unquantized"),
    (r".*\.ya?ml$", "own file"),
    (r"fp8-", "8-bit floats"),
    (r"(nv|mx)fp4a16", "4-bit floats"),
    (r"(rtn|gptq|awq|smoothquant|llm-int8|imatrix|hqq|trellis)\b", None),  # the method's own name
    # A mix is called by its main format, perhaps with a suffix; iq2_m, iq3_xs and iq3_m by their bits.
    ("|".join((*BLOCK_FORMATS, r"iq\d_")), "llama.cpp mix"),
)


@cache
def recipe_family(recipe: str) -> str:
    """ "gptq-q4_k_m+kv-fp8" -> "gptq"; how keys and values are kept is no part of it, nor a rotation before."""
    weights = recipe.partition("+")[0]
    for prefix in ("rot-", "spin-", "had-"):
        weights = weights.removeprefix(prefix)
    for pattern, family in FAMILIES:
        found = re.match(pattern, weights)
        if found:
            return family or found.group()
    return "other"
