"""Relative output error of a weight per format and method, from calibration statistics and a sample of rows.

error = tr(E H E^T) / tr(W H W^T), E the rounding error and H = X^T X. Rows are rounded independently in every format
and method used here, so a sample of rows estimates the error of all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from quant.errors import InputError
from quant.formats import Format, IntGroupFormat, dequantize, get_format
from quant.formats.grid import GridFormat
from quant.job import FLOATS
from quant.methods import Layer, make_method
from quant.models import EMBEDDING, ModelConfig
from quant.present import present
from quant.qtensor import QTensor
from quant.stats import InputStats

NEEDED = frozenset({"hessian"})
SAMPLE_ROWS = 256  # per site: the error of the mean of so many rows is a few percent
SAMPLE_EXPERTS = 8  # of a stack
METHODS = ("rtn", "imatrix", "gptq")

Key = tuple[str, str]  # format, method
Errors = dict[Key, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of the tensors of one site.

    weights  canonical name -> [n, K] float32
    counts   [n] tokens that look up each row, if errors of an embedding are asked for; None for a linear
    formats  that the site may get
    """

    weights: dict[str, np.ndarray]
    formats: tuple[str, ...]
    counts: np.ndarray | None = None


def sample_rows(tensors: Mapping[str, QTensor], formats: Iterable[str]) -> Sample:
    """Rows spread evenly over the tensors of a site, and over some of its experts."""
    names = list(tensors)
    names = [names[place] for place in _spread(len(names), SAMPLE_EXPERTS)]
    num_rows = max(16, SAMPLE_ROWS // len(names))
    rows = {name: tensors[name].take_rows(_spread(tensors[name].shape[0], num_rows)) for name in names}
    return Sample({name: dequantize(each) for name, each in rows.items()}, tuple(formats))


def sample_embedding(table: QTensor, tokens: np.ndarray, formats: Iterable[str]) -> Sample:
    """The rows that the calibration text looks up most. tokens: of the text"""
    ids, counts = np.unique(tokens, return_counts=True)
    most = np.sort(np.argsort(-counts, kind="stable")[:SAMPLE_ROWS])
    return Sample({EMBEDDING: dequantize(table.take_rows(ids[most]))}, tuple(formats), counts[most])


def measure_errors(
    samples: Mapping[str, Sample], inputs: Mapping[str, InputStats], config: ModelConfig, plain: bool = True
) -> dict[str, Errors]:
    """Site -> errors; the sites of one layer together, so that linears with one input share a factorization.

    plain   also round to nearest where importance can be taken into account
    """
    found: dict[str, Errors] = {site: {} for site in samples}
    for method in ("imatrix", "gptq", "rtn"):
        wanted = {
            site: [
                fmt
                for fmt in sample.formats
                if _rounds_to(method, get_format(fmt))
                and (plain or method != "rtn" or (fmt, "imatrix") not in found[site])
            ]
            for site, sample in samples.items()
        }
        for site, fmt, error in _with_method(samples, wanted, inputs, config, method):
            found[site][fmt, method] = error
    return found


def _with_method(
    samples: Mapping[str, Sample],
    wanted: Mapping[str, Sequence[str]],
    inputs: Mapping[str, InputStats],
    config: ModelConfig,
    method: str,
) -> Iterator[tuple[str, str, float]]:
    """Site, format and error. wanted: site -> formats, all in one call, so that they share factorizations too"""
    maker = make_method(method, {})
    sites = [
        site
        for site, sample in samples.items()
        if not maker.needs
        or (
            all(_was_reached(inputs.get(name)) for name in sample.weights)
            and (sample.counts is None or maker.weighs_tied_tables)
        )
    ]
    rows = {
        (site, fmt, name): weight
        for site in sites
        for fmt in wanted[site]
        for name, weight in samples[site].weights.items()
    }
    if not rows:
        return
    keys = {key: f"{key[1]} {key[2]}" for key in rows}
    layer = Layer({keys[key]: each for key, each in rows.items()}, {keys[key]: key[1] for key in rows}, config=config)
    try:
        made = maker.quantize_layer(layer, {keys[key]: inputs[key[2]] for key in rows} if maker.needs else {})
    except InputError:
        if method == "gptq":  # a Hessian that no damping makes positive definite: the other methods remain
            return
        raise
    for site in sites:
        for fmt in wanted[site]:
            rounded = {name: dequantize(made[keys[site, fmt, name]]) for name in samples[site].weights}
            yield site, fmt, _error(samples[site], rounded, inputs)


def _rounds_to(method: str, fmt: Format) -> bool:
    """Whether the method has a form of its own for the format: integers in groups search nothing by importance."""
    if method == "gptq":
        return isinstance(fmt, GridFormat | IntGroupFormat)
    return method == "rtn" or not (isinstance(fmt, IntGroupFormat) or fmt.name in FLOATS)


def _error(sample: Sample, rounded: Mapping[str, np.ndarray], inputs: Mapping[str, InputStats]) -> float:
    """Error of all tensors of the site together, each with the tokens that reach it."""
    lost = power = 0.0
    for name, weight in sample.weights.items():
        lost += output_power(weight - rounded[name], inputs.get(name), sample.counts)
        power += output_power(weight, inputs.get(name), sample.counts)
    return lost / power if power else 0.0


def output_power(weight: np.ndarray, stats: InputStats | None, counts: np.ndarray | None = None) -> float:
    """Sum of squares of the outputs that the rows [n, K] give on the calibration text."""
    if counts is not None:
        return float(counts @ np.square(weight).sum(axis=1, dtype=np.float64))
    if not _was_reached(stats):
        return float(np.square(weight).sum(dtype=np.float64))
    stats = present(stats)
    if stats.hessian is None:
        return float((np.square(weight) @ stats.sum_squares).sum(dtype=np.float64))
    rows = torch.from_numpy(weight)  # torch: the threads of NumPy's products wait for one another on a busy machine
    return max(0.0, float(((rows @ torch.from_numpy(stats.hessian)) * rows).sum(dtype=torch.float64)))


def _was_reached(stats: InputStats | None) -> bool:
    return stats is not None and stats.num_tokens > 0


def _spread(total: int, most: int) -> np.ndarray:
    num = min(total, most)
    return np.arange(num) * total // num
