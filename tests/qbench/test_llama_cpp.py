"""Files that qbench writes, opened by llama.cpp: the same tokens give the same perplexity."""

import numpy as np
import pytest
import torch
from support.artifact import write_artifact
from support.close import assert_close
from support.data import STORIES260K, TINYSTORIES_VALID, needs_stories, needs_tinystories
from support.llama_logits import llama_cpp_perplexity
from support.measuring import evaluated
from support.perplexity import stacked

from qbench.quality.evaluate import prepare, read_text
from qbench.quality.quality import measure_quality
from qbench.sources import open_source
from quant.recipes import RECIPES, get_recipe

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

pytestmark = pytest.mark.usefixtures("inputs_of_8_bits")

# Every mix that needs no calibration, once for each format that it is named after.
MIXES = [name for name, recipe in RECIPES.items() if recipe.container == "gguf" and recipe.method == "rtn"]
GGUF_RECIPES = list({get_recipe(name).policy.default: name for name in MIXES}.values())
NUM_WINDOWS = 1
AGREEMENT = 0.005
FOUR_DIGITS = 5e-4  # half a unit of the last of four digits, where the first is 1


def llama_perplexity(path, text: str, size: int) -> tuple[float, int]:
    """The result of llama-perplexity -c SIZE from llama.cpp's logits. returns (perplexity, scored tokens)

    source   llama.cpp, tools/perplexity/perplexity.cpp, perplexity()
    """
    model = llama_cpp.Llama(str(path), n_ctx=size, n_batch=size, logits_all=True, verbose=False, n_threads=1)
    tokens = model.tokenize(text.encode(), add_bos=True, special=False)
    assert len(tokens) >= 2 * size
    total, count = 0.0, 0
    for start in range(0, len(tokens) - size + 1, size):
        chunk = tokens[start : start + size]
        model.reset()
        model.eval([model.token_bos(), *chunk[1:]] if model._model.add_bos_token() else chunk)
        for position in range(size // 2, size - 1):
            logits = model.scores[position].astype(np.float64)
            top = logits.max()
            total += top + np.log(np.exp(logits - top).sum()) - logits[chunk[position + 1]]
            count += 1
    model.close()
    return float(np.exp(total / count)), count


def check_llama_perplexity(tmp_path, spec: str, recipe: str, text: str, agreement: float) -> None:
    path = write_artifact(open_source(spec), tmp_path / "model.gguf", recipe=get_recipe(recipe))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    ours = evaluated(str(path), text=tmp_path / "text.txt", protocols=["llama.cpp-512"])
    theirs, count = llama_perplexity(path, text, 512)
    assert ours["num_tokens"] == count >= 4 * 255
    assert abs(ours["perplexity"] / theirs - 1) < agreement, f"ours {ours['perplexity']}, llama.cpp {theirs}"


# At a perplexity of 54 the rounding of inputs matters: both sides are 0.64 % apart if both round.
TERNARY = ("tq1_0", "tq2_0")


def check(tmp_path, spec: str, recipe: str, text) -> None:
    source = open_source(spec)
    path = write_artifact(source, tmp_path / "model.gguf", recipe=get_recipe(recipe))
    (plan,) = prepare(source, read_text(text, spec), NUM_WINDOWS)
    compute = "float32" if recipe in TERNARY else "fast"
    ours = evaluated(str(path), text=text or write_heldout(tmp_path), max_windows=NUM_WINDOWS, compute=compute)
    theirs = llama_cpp_perplexity(path, stacked(plan))
    assert ours["num_windows"] == NUM_WINDOWS
    assert abs(ours["perplexity"] / theirs - 1) < AGREEMENT, f"{recipe}: ours {ours['perplexity']}, llama.cpp {theirs}"


def write_heldout(folder):
    path = folder / "heldout.txt"
    path.write_text(read_text(None, "ref:llama"), encoding="utf-8")
    return path


FEW = ("q4_k_m", "q6_k", "q8_0", "iq4_xs", "q4_0", "mxfp4")
OTHERS = pytest.mark.exhaustive("a second for each; a recipe of each kind of block is in every run")


@pytest.mark.parametrize("recipe", [pytest.param(name, marks=() if name in FEW else OTHERS) for name in GGUF_RECIPES])
def test_perplexity_of_the_reference_model(tmp_path, recipe):
    check(tmp_path, "ref:llama", recipe, None)


@needs_stories
@needs_tinystories
@pytest.mark.parametrize("recipe", ["q4_k_m", "iq4_xs"])
def test_perplexity_of_stories260k(tmp_path, recipe):
    check(tmp_path, str(STORIES260K), recipe, TINYSTORIES_VALID)


@pytest.mark.parametrize("recipe, agreement", [("bf16", FOUR_DIGITS), ("q8_0", AGREEMENT)])
def test_llama_cpp_512_is_llama_perplexity_on_the_reference_model(tmp_path, recipe, agreement):
    """The text names special tokens, which are text like any other to llama-perplexity."""
    check_llama_perplexity(tmp_path, "ref:llama", recipe, read_text(None, "ref:llama")[:7000], agreement)


@needs_stories
@needs_tinystories
@pytest.mark.parametrize("recipe, agreement", [("bf16", FOUR_DIGITS), ("q8_0", AGREEMENT)])
def test_llama_cpp_512_is_llama_perplexity_on_stories260k(tmp_path, recipe, agreement):
    text = TINYSTORIES_VALID.read_text(encoding="utf-8")[:4500]
    check_llama_perplexity(tmp_path, str(STORIES260K), recipe, text, agreement)


def test_on_the_same_logits_llama_cpp_512_is_llama_perplexity_to_the_last_digit(tmp_path):
    """The protocol alone: its windows through llama.cpp itself."""
    path = write_artifact(open_source("ref:llama"), tmp_path / "model.gguf", recipe=get_recipe("q4_k_m"))
    text = read_text(None, "ref:llama")[:7000]
    (plan,) = prepare(open_source(str(path)), text, None, ["llama.cpp-512"])
    model = llama_cpp.Llama(str(path), n_ctx=512, n_batch=512, logits_all=True, verbose=False, n_threads=1)

    def logits_of(tokens: torch.Tensor) -> torch.Tensor:
        rows = []
        for window in tokens.tolist():
            model.reset()
            model.eval(window)
            rows.append(torch.from_numpy(np.array(model.scores[: len(window)])))
        return torch.stack(rows)  # [B, T, V]

    (ours,) = measure_quality(logits_of, [plan], model.n_vocab())
    model.close()
    theirs, count = llama_perplexity(path, text, 512)
    assert ours.num_tokens == count
    assert_close(ours.perplexity, theirs, rtol=2.0**-52 * 1536 * 8)  # sums over the vocabulary in float64
