"""Files that qbench writes, opened by llama.cpp: the same tokens give the same perplexity."""

import numpy as np
import pytest
from support.data import STORIES260K, TINYSTORIES_VALID, needs_stories, needs_tinystories
from support.perplexity import stacked

from qbench.harness.evaluate import evaluate, prepare, read_text
from qbench.sources import open_source
from quant.artifacts import write_artifact
from quant.recipes import RECIPES, get_recipe

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

# Every mix that needs no calibration, once for each format that it is named after.
MIXES = [name for name, recipe in RECIPES.items() if recipe.container == "gguf" and recipe.method == "rtn"]
GGUF_RECIPES = list({get_recipe(name).policy.default: name for name in MIXES}.values())
NUM_WINDOWS = 4
# llama.cpp rounds activations of K-quant products to 8 bits in blocks of 256, where ours are fp32.
AGREEMENT = 0.005


def llama_cpp_perplexity(path, windows: np.ndarray) -> float:
    """windows [W, T] int64, each from an empty cache; every token but a window's first is scored."""
    model = llama_cpp.Llama(str(path), n_ctx=windows.shape[1], logits_all=True, verbose=False, n_threads=2)
    losses = []
    for window in windows:
        model.reset()
        model.eval(window.tolist())
        logits = np.array(model.scores[: len(window) - 1], dtype=np.float64)  # [T - 1, V]
        top = logits.max(axis=1)
        log_sum = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
        losses.append(log_sum - logits[np.arange(len(logits)), window[1:]])
    model.close()
    return float(np.exp(np.mean(losses)))


def check(tmp_path, spec: str, recipe: str, text) -> None:
    source = open_source(spec)
    path = write_artifact(source, tmp_path / "model.gguf", recipe=get_recipe(recipe))
    (plan,) = prepare(source, read_text(text, spec), NUM_WINDOWS)
    ours = evaluate(str(path), text=text or write_heldout(tmp_path), max_windows=NUM_WINDOWS)
    theirs = llama_cpp_perplexity(path, stacked(plan))
    assert ours["num_windows"] == NUM_WINDOWS
    assert abs(ours["perplexity"] / theirs - 1) < AGREEMENT, f"{recipe}: ours {ours['perplexity']}, llama.cpp {theirs}"


def write_heldout(folder):
    path = folder / "heldout.txt"
    path.write_text(read_text(None, "ref:llama"), encoding="utf-8")
    return path


@pytest.mark.parametrize("recipe", GGUF_RECIPES)
def test_perplexity_of_the_reference_model(tmp_path, recipe):
    check(tmp_path, "ref:llama", recipe, None)


@needs_stories
@needs_tinystories
@pytest.mark.parametrize("recipe", ["q8_0", "q4_k_m", "iq4_xs"])
def test_perplexity_of_stories260k(tmp_path, recipe):
    check(tmp_path, str(STORIES260K), recipe, TINYSTORIES_VALID)
