"""Distance of real models from the grid of their files: `python -m checks.off_grid real:NAME ...`.

Prints a Markdown table, or puts it between the markers `off-grid` of a document: --into FILE.
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
from qbench.sources.real import SPREAD, RescaledSource
from qbench.words.read import markdown_grid
from qbench.words.written import read_text_file
from quant.artifacts.gguf_reader import GGUFSource
from quant.formats import dequantize, get_format
from quant.qtensor import QTensor
from quant.source import Source, SourceView, TensorInfo

BLOCK = 32  # weights with one scale, at least
NEAR = 0.05  # of a step
HEADINGS = ["model", "weights", "near the grid %", "error of q8_0 %", "perplexity"]
MARKER = "off-grid"


class NoisySource(SourceView):
    """`source` with noise that is uniform within one step of the grid of each block of a linear in a layer."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        linears = {name: TensorInfo(source.tensors[name].shape, "f32", 0) for name in linears_of(source)}
        self.tensors = {**source.tensors, **linears}
        self.linears = linears

    def read(self, name: str) -> QTensor:
        qtensor = self.source.read(name)
        if name not in self.linears:
            return qtensor
        blocks = dequantize(qtensor).astype(np.float32).reshape(-1, BLOCK)
        noise = np.random.default_rng(len(name)).uniform(-0.5, 0.5, blocks.shape)
        noisy = (blocks + steps_of(blocks) * noise).astype(np.float32)
        return get_format("f32").quantize_ref(noisy.reshape(qtensor.shape))


def steps_of(blocks: np.ndarray) -> np.ndarray:
    """[B, 1]: the smallest distance between two values of each block [B, 32] on a grid; 0 if all are equal"""
    ordered = np.sort(blocks, axis=1)
    gaps = np.diff(ordered, axis=1)
    gaps[gaps < 1e-5 * np.abs(ordered).max(axis=1, keepdims=True)] = np.inf  # equal up to rounding
    step = gaps.min(axis=1, keepdims=True)
    return np.where(np.isfinite(step), step, 0)


def linears_of(source: Source) -> list[str]:
    return [name for name, info in source.tensors.items() if len(info.shape) == 2 and ".layers." in name]


def share_near_grid(source: Source, file: Source) -> float:
    """Share of the linears' weights that are NEAR a point of the grid that their format in the file would have.

    The ends of each block are left out: a grid is laid through them.
    """
    near = total = 0
    for name in linears_of(source):
        weight = dequantize(source.read(name)).astype(np.float32)
        on_grid = dequantize(get_format(file.tensors[name].format).quantize_ref(weight)).reshape(-1, BLOCK)
        blocks, step = weight.reshape(-1, BLOCK), steps_of(on_grid)
        inside = (
            (blocks > blocks.min(axis=1, keepdims=True)) & (blocks < blocks.max(axis=1, keepdims=True)) & (step > 0)
        )
        near += int(((np.abs(blocks - on_grid) <= NEAR * step) & inside).sum())
        total += int(inside.sum())
    return near / total


def rounding_error(source: Source) -> float:
    """Error of q8_0 over the size of the linears' weights, both as root mean square."""
    error = size = 0.0
    for name in linears_of(source):
        weight = dequantize(source.read(name)).astype(np.float32)
        error += float(np.square(dequantize(get_format("q8_0").quantize_ref(weight)) - weight).sum())
        size += float(np.square(weight).sum())
    return float(np.sqrt(error / size))


def perplexity(source: Source, text: Path, windows: int) -> float:
    scorings = prepare(source, read_text_file(text, "text"), windows, ["windows-512"])
    model = load_model(source, RunOptions(), impl="reference")
    found = measure_quality(model, scorings, model.config.vocab_size)[0].perplexity
    assert found is not None
    return found


def table(specs: Sequence[str], windows: int) -> str:
    text = real_file("real:wikitext-2", "text")
    rows = [HEADINGS]
    for spec in specs:
        file = GGUFSource(real_file(spec, "model"), spec)
        for name, source in (
            ("as in the file", file),
            (f"channels scaled, {np.exp(-SPREAD):.2f} to {np.exp(SPREAD):.2f}", RescaledSource(file)),
            ("with noise of a step", NoisySource(file)),
        ):
            figures = (
                100 * share_near_grid(source, file),
                100 * rounding_error(source),
                perplexity(source, text, windows),
            )
            rows.append([spec, name, *map("{:.{}f}".format, figures, (1, 3, 3))])
    grid = markdown_grid(rows, [False, False, True, True, True])
    return f"{grid}\n\nPerplexity of {windows} windows of 512 tokens of `real:wikitext-2`, computed in float32.\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Distance of real models from the grid of their files.")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--into", type=Path)
    given = parser.parse_args(arguments)
    text = table(given.models, given.windows)
    if given.into:
        replace_between_markers(given.into, MARKER, text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
