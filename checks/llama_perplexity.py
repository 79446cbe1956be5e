"""Perplexity of a sweep's GGUF files by qbench and by llama.cpp, on the same tokens.

    python -m checks.llama_perplexity runs/real

Prints a Markdown table, or puts it between the markers `llama-perplexity` of a document: --into FILE. Both round the
inputs of linears to 8 bits, in blocks of their own, so the last digits differ.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from qbench.quality.evaluate import prepare
from qbench.quality.quality import measure_quality
from qbench.real import real_file
from qbench.report import replace_between_markers
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.sources import open_source
from qbench.words.read import markdown_grid
from qbench.words.written import read_text_file
from quant.json_file import read_json

MARKER = "llama-perplexity"
HEADINGS = ["model", "recipe", "qbench", "llama.cpp", "ratio"]


def by_llama_cpp(path: Path, windows: Sequence[np.ndarray]) -> float:
    """Perplexity of all tokens but the first of each window.

    windows  token ids [T], each from an empty cache
    """
    import llama_cpp

    f32 = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32}
    model = llama_cpp.Llama(str(path), n_ctx=max(map(len, windows)), logits_all=True, verbose=False, n_threads=2, **f32)
    losses = []
    for window in windows:
        model.reset()
        model.eval(window.tolist())
        logits = np.array(model.scores[: len(window) - 1], dtype=np.float64)  # [T - 1, V]
        largest = logits.max(axis=1)
        lse = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest
        losses.append(lse - logits[np.arange(len(logits)), window[1:]])
    model.close()
    return float(np.exp(np.concatenate(losses).mean()))


def by_qbench(path: Path, text: Path, num_windows: int) -> tuple[float, list[np.ndarray]]:
    """The perplexity, and the token ids of its windows."""
    source = open_source(str(path))
    scorings = prepare(source, read_text_file(text, "text"), num_windows, ["windows-512"])
    model = load_model(source, RunOptions())
    found = measure_quality(model, scorings, model.config.vocab_size)[0].perplexity
    assert found is not None
    return found, [window.tokens for window in scorings[0].windows]


def table(run: Path, num_windows: int) -> str:
    text, rows, ratios = real_file("real:wikitext-2", "text"), [HEADINGS], []
    for made in sorted(run.glob("artifacts/*/made.json")):
        about = read_json(made)
        path = made.parent / about["file"]
        if path.suffix != ".gguf":
            continue
        ours, windows = by_qbench(path, text, num_windows)
        theirs = by_llama_cpp(path, windows)
        ratios.append(ours / theirs)
        model = made.parent.name.removesuffix(f"-{about['recipe']}").replace("_", ":", 1)
        rows.append([model, about["recipe"], f"{ours:.4f}", f"{theirs:.4f}", f"{ours / theirs:.5f}"])
        print(*rows[-1], file=sys.stderr, flush=True)
    grid = markdown_grid(rows, [False, False, True, True, True])
    farthest = max(abs(ratio - 1) for ratio in ratios)
    return (
        f"{grid}\n\n{num_windows} windows of 512 tokens of `real:wikitext-2`; farthest ratio from 1: {farthest:.5f}.\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Perplexity of a sweep's GGUF files by qbench and by llama.cpp.")
    parser.add_argument("run", type=Path, help="folder of a sweep, for example runs/real")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--into", type=Path)
    given = parser.parse_args(arguments)
    text = table(given.run, given.windows)
    if given.into:
        replace_between_markers(given.into, MARKER, text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
