"""Costs of the plans of latent attention, fitted to this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import exp, log

from qbench.mla.fit import fit_costs
from qbench.mla.measure import Grid, ModePoint, measure_modes
from qbench.runtime.attention.mla_costs import COSTS, PlanCosts
from qbench.runtime.attention.mla_modes import COMPRESSED, ELIDED, mode_by
from qbench.sources import open_source
from quant.json_data import JsonData
from quant.kv.source import KVSource
from quant.models import ModelConfig
from quant.present import present

# Two models of unlike sizes, which the fit needs to separate the terms.
GRIDS = {
    "ref:mla-moe": Grid((0, 256), (1,), (8, 64, 256), rounds=3, modes=(ELIDED, COMPRESSED), clock="cpu"),
    "rand:deepseek-v2-lite": Grid((0, 512), (1,), (32, 128, 192), rounds=1, modes=(ELIDED, COMPRESSED), clock="cpu"),
}
KV_FORMAT = "kv-f16"
LEAST_GAIN = 1.01


@dataclass(frozen=True, slots=True)
class LatentGain(JsonData):
    """costs: fitted, None: the shipped ones stay; gain: time of the shipped choices over that of the fitted ones"""

    costs: dict[str, float] | None
    gain: float
    points: int


def tune_latent() -> LatentGain:
    """Measure both plans at a few sizes and fit their costs."""
    configs, rows = {}, []
    for spec, grid in GRIDS.items():
        source = open_source(spec)
        configs[spec] = ModelConfig.of(source)
        rows += [row.point for row in measure_modes(KVSource(source, KV_FORMAT), grid)]
    found = fit_costs(rows, configs)
    names = {field.name for field in fields(PlanCosts)}
    return judged(rows, configs, {name: value for name, value in found.items() if name in names})


def judged(rows: Sequence[ModePoint], configs: Mapping[str, ModelConfig], costs: dict[str, float]) -> LatentGain:
    """The fitted costs if their choices take less time at the rows' sizes than the shipped ones'."""
    logs = []
    times = {(row.model, row.context, row.tokens, row.mode): row.ms for row in rows}
    for model, held, new in sorted({key[:3] for key in times}):
        config = configs[model]
        shipped, fitted = (
            times[model, held, new, mode_by(each, present(config.mla), config.num_heads, held, new).name]
            for each in (COSTS, PlanCosts(**costs))
        )
        logs.append(log(shipped / fitted))
    gain = exp(sum(logs) / len(logs))
    is_kept = gain >= LEAST_GAIN and costs != asdict(COSTS)
    return LatentGain(costs if is_kept else None, gain if is_kept else 1.0, len(logs))
