"""Gains of refinements of GPTQ on K-quant grids, on text that was not calibrated on.

    cd tests && ../.venv/bin/python -m support.gptq_variants            # errors of the outputs of two layers
    cd tests && ../.venv/bin/python -m support.gptq_variants ref:llama    # divergence of the whole model

Each variant is a method of its own, which recipes of this process can name. `gptq` orders blocks, and columns within
each, by importance, and fits the grid of a block at its turn.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from support.calibration import layer_tensors

from qbench.calibration.run import quantized_model
from qbench.calibration.texts import read_tokens
from qbench.quality.evaluate import prepare, read_text
from qbench.run.work import CalibrationWork
from qbench.runtime.streamed import StreamedDecoder
from qbench.search.validate import Check, measure_all
from qbench.sources import open_source
from qbench.statistics.paired import kld_ratio
from quant.formats import dequantize, get_format
from quant.formats.grid import GridFormat
from quant.job import make_job
from quant.linalg.error_feedback import Solver
from quant.methods import METHODS, Layer, make_method
from quant.methods.gptq import Gptq, Shared
from quant.methods.gptq_order import ColumnOrder, group_aware_order
from quant.models import EMBEDDING, ModelConfig
from quant.qtensor import QTensor
from quant.recipes import get_recipe
from quant.stats import InputStats

WINDOWS, LENGTH = 16, 256  # calibration, and as many tokens again to measure on
FORMATS = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
# Bytes of a super-block at which the float16 factors of all scales, and of all minima, begin.
FACTORS = {"q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)}

Statistics = tuple[str, np.ndarray, InputStats, np.ndarray]


@dataclass(frozen=True, slots=True)
class Variant(Gptq):
    """order    by importance: "blocks", "columns" within a block, or "both"
    passes   over the codes after the feedback: each goes to its best value, given all others
    refits   of each block's factors against the Hessian, after the passes, each followed by one more pass
    """

    order: str = "both"
    passes: int = 0
    refits: int = 0

    name: ClassVar[str] = "gptq-variant"

    def _order(self, importance: np.ndarray, group_size: int) -> ColumnOrder:
        groups = np.arange(len(importance)) // group_size
        if self.order == "blocks":
            largest = importance.reshape(-1, group_size).max(axis=1)
            return ColumnOrder(np.lexsort((np.arange(len(groups)), groups, -largest[groups])), groups)
        if self.order == "columns":
            return ColumnOrder(np.lexsort((-importance, groups)), groups)
        return Gptq._order(self, importance, group_size)

    def _quantize(
        self, name: str, layer: Layer, stats: Mapping[str, InputStats], solver: Solver, shared: dict[Shared, object]
    ) -> QTensor:
        made = Gptq._quantize(self, name, layer, stats, solver, shared)
        fmt = get_format(made.format)
        if not isinstance(fmt, GridFormat) or not (self.passes or self.refits):
            return made
        hessian = stats[name].hessian.astype(np.float64)
        diagonal = hessian.diagonal()
        hessian = hessian + np.diag(np.where(diagonal == 0, 1, self.damp * diagonal.mean()))
        columns = group_aware_order(diagonal, fmt.block_size).columns
        improved = Improved(fmt, made, layer.weights[name].astype(np.float64), hessian)
        for _ in range(self.passes):
            improved.move_codes(columns)
        for _ in range(self.refits if fmt.name in FACTORS else 0):
            improved.refit_factors()
            improved.move_codes(columns)
        return improved.packed()


class Improved:
    """A rounded weight whose tr(E H E^T), E the rounding error, falls with each step.

    weight    [N, K] float64
    hessian   [K, K] float64, damped
    """

    def __init__(self, fmt: GridFormat, qtensor: QTensor, weight: np.ndarray, hessian: np.ndarray) -> None:
        self.fmt, self.weight, self.hessian = fmt, weight, hessian
        self._read(np.array(qtensor.parts["blocks"].reshape(-1, fmt.block_bytes)))

    def _read(self, data: np.ndarray) -> None:
        grid = self.fmt.read_grid(data)
        self.data, self.ends = data, (grid.qmin, grid.qmax)
        shape = self.weight.shape
        self.scale, self.offset = grid.scale.reshape(shape), grid.offset.reshape(shape)
        self.q = self.fmt.read_codes(data).reshape(shape).astype(np.float64)
        self.error = self.scale * self.q + self.offset - self.weight

    def loss(self) -> np.ndarray:
        """[N]"""
        return np.einsum("nk,nk->n", self.error @ self.hessian, self.error)

    def move_codes(self, columns: np.ndarray) -> None:
        """Each column in turn goes to the codes of least loss, given all other errors; grids stay."""
        slope = self.error @ self.hessian
        for k in columns:
            scale = self.scale[:, k]
            step = np.where(scale == 0, 1, scale)
            target = self.weight[:, k] + self.error[:, k] - slope[:, k] / self.hessian[k, k]
            best = np.clip(np.rint((target - self.offset[:, k]) / step), *self.ends)
            moved = scale * (best - self.q[:, k])
            slope += np.multiply.outer(moved, self.hessian[k])
            self.error[:, k] += moved
            self.q[:, k] = best

    def refit_factors(self) -> None:
        """The float16 factors of each block in turn take the values of least loss; codes and small scales stay."""
        size, places = self.fmt.block_size, FACTORS[self.fmt.name]
        for block in range(self.weight.shape[1] // size):
            part = slice(block * size, (block + 1) * size)
            # The weights of the block are the sum of these, each a product with one factor: [N, F, size]
            parts = np.stack([self.scale[:, part] * self.q[:, part], self.offset[:, part]][: len(places)], axis=1)
            if len(places) == 1:
                parts[:, 0] += self.offset[:, part]
            slope = np.einsum("nfs,ns->nf", parts, self.error @ self.hessian[:, part])
            curve = np.einsum("nfs,st,ngt->nfg", parts, self.hessian[part, part], parts)
            change = -np.einsum("nfg,ng->nf", np.linalg.pinv(curve, rcond=1e-9, hermitian=True), slope)
            self._try_factors(block, places, 1 + change)

    def _try_factors(self, block: int, places: tuple[int, ...], times: np.ndarray) -> None:
        """times [N, F]; rows whose loss would rise stay"""
        before = self.loss()
        data = self.packed().parts["blocks"].reshape(len(self.weight), -1, self.fmt.block_bytes).copy()
        for index, place in enumerate(places):
            factor = np.ascontiguousarray(data[:, block, place : place + 2]).view("<f2")[:, 0].astype(np.float64)
            data[:, block, place : place + 2] = (factor * times[:, index]).astype("<f2")[:, None].view(np.uint8)
        kept = self.packed().parts["blocks"].reshape(data.shape)
        self._read(data.reshape(-1, self.fmt.block_bytes))
        rises = ~(self.loss() < before)
        data[rises] = kept[rises]
        self._read(data.reshape(-1, self.fmt.block_bytes))

    def packed(self) -> QTensor:
        grid = self.fmt.read_grid(self.data)
        blocks = self.fmt.pack_grid(grid, self.q.reshape(-1, self.fmt.block_size).astype(np.int8))
        return QTensor(self.fmt.name, self.weight.shape, {"blocks": blocks.reshape(len(self.weight), -1)})


VARIANTS: dict[str, dict[str, object]] = {
    "columns and blocks as they are": {"group_aware": False},
    "columns of a block by importance": {"order": "columns"},
    "blocks by importance": {"order": "blocks"},
    "grids fitted before the feedback": {"static_groups": True},
    "scales refitted and 1 pass": {"refits": 1},
    "1 pass": {"passes": 1},
    "3 passes": {"passes": 3},
    "3 passes and scales refitted": {"passes": 3, "refits": 1},
}


class Inputs:
    """Observer that keeps the input of each linear."""

    def __init__(self) -> None:
        self.of: dict[str, np.ndarray] = {}

    def inputs(self, names, x) -> None:
        rows = x.reshape(-1, x.shape[-1]).double().numpy()
        self.of |= dict.fromkeys(names, rows)

    def keys_values(self, layer, k, v) -> None:
        pass


def layers_of(spec: str = "ref:llama") -> list[Statistics]:
    """(name, weight [N, K], statistics of the calibration windows, Hessian of fresh ones) of linears of two layers"""
    source = open_source(spec)
    decoder = StreamedDecoder(ModelConfig.of(source))
    ids = np.concatenate(list(islice(read_tokens("generated", source, 7), 400)))
    tokens = torch.from_numpy(ids[: 2 * WINDOWS * LENGTH].reshape(2 * WINDOWS, LENGTH))
    x, found = decoder.embed({EMBEDDING: source.read(EMBEDDING)}, tokens), []
    for index in range(2):
        observer = Inputs()
        tensors = layer_tensors(source, index)
        x = decoder.layer(index, tensors)(x, observer)
        for part in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"):
            name = f"model.layers.{index}.{part}.weight"
            seen, fresh = np.split(observer.of[name], 2)
            hessian = (seen.T @ seen).astype(np.float32)
            stats = InputStats(len(seen), np.abs(seen).max(axis=0), np.square(seen).sum(axis=0), hessian)
            found.append((name, dequantize(tensors[name]), stats, fresh.T @ fresh))
    return found


def mean_error(layers: list[Statistics], method: str, fmt: str, **options) -> float:
    """Geometric mean over the linears of ||(W - Q) X||^2 / ||W X||^2 on fresh inputs."""
    errors = []
    for name, weight, stats, hessian in layers:
        layer = Layer({name: weight}, {name: fmt})
        off = weight - dequantize(make_method(method, options).quantize_layer(layer, {name: stats})[name])
        errors.append(np.einsum("ij,ij->", off @ hessian, off) / np.einsum("ij,ij->", weight @ hessian, weight))
    return float(np.exp(np.mean(np.log(errors))))


def print_layers() -> None:
    layers = layers_of()
    print("| error of the outputs over that of gptq | " + " | ".join(FORMATS) + " |")
    print("|---" * (len(FORMATS) + 1) + "|")
    base = {fmt: mean_error(layers, "gptq", fmt) for fmt in FORMATS}
    for name, options in VARIANTS.items():
        ratios = [mean_error(layers, Variant.name, fmt, **options) / base[fmt] for fmt in FORMATS]
        print(f"| {name} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |", flush=True)


def print_model(spec: str, recipes: list[str], num_windows: int, variants: list[str]) -> None:
    source = open_source(spec)
    (scoring,) = prepare(source, read_text(None, spec), num_windows)
    options = {"gptq": {}, **{name: VARIANTS[name] for name in variants}}
    found = []
    for recipe in recipes:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            files = {}
            for name, own in options.items():
                made = replace(get_recipe(recipe), method="gptq" if name == "gptq" else Variant.name, options=own)
                model = quantized_model(make_job(source, made), CalibrationWork(), folder / name)
                files[name] = stack.enter_context(model)
            found.append(measure_all(Check(source, files, {}, "gptq", scoring, True, folder, threads=1), scoring))
    print("| divergence over that of gptq, " + spec + " | " + " | ".join(recipes) + " |")
    print("|---" * (len(recipes) + 1) + "|")
    for name in variants:
        ratios = [kld_ratio(blocks["gptq"], blocks[name]) for blocks in found]
        cells = [f"{each.value:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in ratios]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="Reference model whose divergence on held-out text is measured.")
    parser.add_argument("variants", nargs="*", default=list(VARIANTS), help="Rows to measure.")
    parser.add_argument("--recipes", default="gptq-q3_k_s,gptq-q4_k_s", help="Recipes to vary.")
    parser.add_argument("--windows", type=int, default=16, help="Number of held-out windows.")
    chosen = parser.parse_args(arguments)
    METHODS[Variant.name] = Variant
    if chosen.model is None:
        print_layers()
        return
    print_model(chosen.model, chosen.recipes.split(","), chosen.windows, chosen.variants)


if __name__ == "__main__":
    main(sys.argv[1:])
