"""The named recipes, one row each."""

from quant.recipes.llama_mix import LlamaMix
from quant.recipes.policies import Linears, Uniform
from quant.recipes.recipe import Recipe
from quant.recipes.roles import Role

Q6_WHERE_IT_MATTERS = {Role.ATTN_V: "q6_k", Role.FFN_DOWN: "q6_k"}

# name, container, method, policy
ROWS = (
    ("bf16", "hf", "rtn", Uniform("bf16")),
    ("rtn-w8", "hf", "rtn", Linears("w8")),
    ("rtn-w4g128", "hf", "rtn", Linears("w4g128")),
    ("q8_0", "gguf", "rtn", LlamaMix("Q8_0", "q8_0")),
    ("q6_k", "gguf", "rtn", LlamaMix("Q6_K", "q6_k")),
    ("q5_k_m", "gguf", "rtn", LlamaMix("Q5_K_M", "q5_k", Q6_WHERE_IT_MATTERS)),
    ("q4_k_m", "gguf", "rtn", LlamaMix("Q4_K_M", "q4_k", Q6_WHERE_IT_MATTERS)),
    ("q4_0", "gguf", "rtn", LlamaMix("Q4_0", "q4_0")),
)

RECIPES: dict[str, Recipe] = {row[0]: Recipe(*row) for row in ROWS}
