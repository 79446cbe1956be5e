"""The named recipes as rows of a table."""

from dataclasses import dataclass

from quant.formats import get_format
from quant.json_data import JsonData
from quant.methods import METHODS
from quant.recipes.llama_mix import LlamaMix
from quant.recipes.policies import Linears, Uniform
from quant.recipes.presets import RECIPES
from quant.recipes.recipe import Policy, Recipe

# (container, packing) -> programs that load the artifact. A directory of plain floats has no packing.
READERS = {
    ("gguf", None): "llama.cpp and tools built on it",
    ("hf", None): "transformers, vLLM",
    ("hf", "compressed-tensors"): "transformers, vLLM",
    ("hf", "gptq"): "transformers, GPTQModel, vLLM",
    ("hf", "bitsandbytes"): "transformers",
    ("hf", "trellis"): "qbench",
}
FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class ListedRecipe(JsonData):
    """One recipe.

    format           of most matrices
    bits_per_weight  of that format; the figure of a model also counts its other tensors
    calibrated       whether the method reads activations
    container        GGUF, or the quantization config of a Hugging Face directory
    loaded_by        programs that load the artifact
    """

    recipe: str
    bits_per_weight: float
    format: str
    method: str
    calibrated: bool
    container: str
    loaded_by: str
    paper: str | None


def list_recipes() -> list[ListedRecipe]:
    """All named recipes in the order of their table."""
    return [row_of(recipe) for recipe in RECIPES.values()]


def row_of(recipe: Recipe) -> ListedRecipe:
    """The row of one named recipe."""
    method, main = METHODS[recipe.method], main_format(recipe.policy)
    packing = None if recipe.container == "gguf" or main in FLOATS else recipe.packing
    return ListedRecipe(
        recipe=recipe.name,
        bits_per_weight=get_format(main).bits_per_weight,
        format=main,
        method=recipe.method,
        calibrated=bool(method.needs),
        container="gguf" if recipe.container == "gguf" else packing or "safetensors",
        loaded_by=READERS[recipe.container, packing],
        paper=method.paper,
    )


def main_format(policy: Policy) -> str:
    """The format of the matrices that no special rule of a preset's policy names."""
    if isinstance(policy, LlamaMix):
        return policy.default
    if isinstance(policy, Linears | Uniform):
        return policy.format
    raise TypeError(f"expected the policy of a preset, got {type(policy).__name__}")
