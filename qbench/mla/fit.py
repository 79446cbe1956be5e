"""Costs of terms from measured forward passes: the basis of the runtime's choice between modes."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from qbench.measure.records.record import latest, read_records
from qbench.mla.measure import ModePoint
from qbench.mla.work import forward_flop
from qbench.runtime.attention.mla_costs import compressed_terms, elided_terms
from qbench.runtime.attention.mla_modes import COMPRESSED, ELIDED, MODES
from qbench.sources import open_source
from quant.errors import InputError
from quant.json_data import plain
from quant.models import ModelConfig
from quant.present import present

SHARED = ("passes", "projected")  # work of both modes: calls around attention, and projections
FEWEST_ROWS = 16  # twice as many as there are terms


def fit_kept(path: str) -> dict[str, float]:
    """`fit_costs` of the records that `qbench mla --keep` wrote to a file: one sequence on the CPU, 2 new tokens or
    more, since one alone waits for weights to be read and is never in question.

    raises   InputError if there are too few to separate the terms
    """
    records = [record for record in latest(read_records(Path(path))).values() if record.case.kind == "mla"]
    documents = [record.case.to_json() | plain(record.metrics) for record in records]
    names = [field.name for field in fields(ModePoint)]
    on_cpu = [{name: row[name] for name in names} for row in documents if row["device"] == "cpu"]
    rows = [row for row in map(ModePoint.from_json, on_cpu) if row.batch == 1 and row.tokens > 1]
    rows = [row for row in rows if row.mode in (ELIDED, COMPRESSED)]
    models = {row.model for row in rows}
    if len(models) < 2 or len(rows) < FEWEST_ROWS:
        raise InputError(
            f"{path}: {len(rows)} rows of {len(models)} models, expected {FEWEST_ROWS} or more of modes {ELIDED} and "
            f"{COMPRESSED}, batch 1, several --tokens above 1 and several --context, of 2 models or more"
        )
    return fit_costs(rows, {model: ModelConfig.of(open_source(model)) for model in models})


def fit_costs(rows: Sequence[ModePoint], configs: dict[str, ModelConfig]) -> dict[str, float]:
    """Nanoseconds of a unit of each term, of a thread, that come nearest to the rows' times, relative to these.

    rows     of `measure_modes`, batch 1, modes elided and compressed, of models unlike in sizes
    configs  of the rows' models
    returns  the terms of PlanCosts and SHARED ones, all 0 or above
    """
    terms = [_terms(row, configs[row.model]) for row in rows]
    names = sorted({name for each in terms for name in each})
    times = np.array([1e6 * row.ms for row in rows])
    shares = np.array([[each.get(name, 0) for name in names] for each in terms]) / times[:, None]
    return dict(zip(names, _nonnegative(shares, np.ones(len(rows))).tolist(), strict=True))


def _terms(row: ModePoint, config: ModelConfig) -> dict[str, int]:
    held, new = row.context, row.tokens
    of_mode = {ELIDED: elided_terms, COMPRESSED: compressed_terms}[row.mode]
    projected = forward_flop(config, MODES[row.mode], held, new)["projections"]
    return {"passes": 1, "projected": projected, **of_mode(present(config.mla), config.num_heads, held, new)}


def _nonnegative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x of least squares of a x - b with no entry below 0; a column with a negative one is removed for good.

    A column of zeros has x = 0: nothing was measured of it.
    """
    taken = np.flatnonzero(a.any(axis=0))
    x = np.zeros(a.shape[1])
    while len(taken):
        scale = np.linalg.norm(a[:, taken], axis=0)  # units differ by powers of 10
        found = np.linalg.lstsq(a[:, taken] / scale, b, rcond=None)[0] / scale
        if (found >= 0).all():
            x[taken] = found
            break
        taken = np.delete(taken, found.argmin())
    return x
