"""Quality: perplexity and divergence block by block, tasks item by item, each against the baseline's own."""

import math

from qbench.comparison.comparison import collect, require_alike
from qbench.gate.check import Check
from qbench.gate.pairing import Pair
from qbench.measure.metrics import Metrics
from qbench.statistics.cell import Cell, Floors, with_floors
from qbench.statistics.estimate import Estimate
from quant.errors import InputError

# Metrics of a comparison that no check uses: same_top follows the KLD, with more noise; other gates judge the rest.
LEFT = ("same_top", "size_bytes", "kv_bytes_per_token", "pp_tok_s", "tg_tok_s")
UNITS = {"perplexity": "", "kld": "nats"}  # by the kind of metric; of a task's items right or wrong it is "share"


def quality_checks(pair: Pair, floors: Floors) -> list[Check]:
    """Perplexity, KLD and tasks of one case; [] if it evaluates nothing.

    floors   protocol hash -> "perplexity" or "kld" -> the loss that the same model shows against itself
    raises   InputError for rows of unlike protocols or items, and if the baseline lacks the figures that pair with this
             run
    """
    before, now = pair.baseline.figures, pair.now.figures
    _require_alike(pair.name, before, now)
    if now.quality is not None and now.quality.perplexity is None:
        was = before.figure("perplexity")
        if was is None:
            raise InputError(f"{pair.name}: the baseline's logits were not finite either, so nothing can be compared")
        broken = Estimate(math.inf)
        return [Check("quality", pair.name, "perplexity", "", was, math.nan, broken, is_exact=True)]
    compared = collect(pair.baseline, pair.now)
    left_out = [why for why in compared.left_out if not why.startswith("speed")]
    if left_out:
        raise InputError(f"{pair.name}: {left_out[0]}")
    cells = [cell for cell in with_floors(compared.cells, floors) if cell.kind_of_metric not in LEFT and cell.is_tested]
    return [_check(pair.name, cell) for cell in cells]


def _require_alike(case: str, before: Metrics, now: Metrics) -> None:
    if now.quality is not None and now.quality.protocol is not None:
        if before.quality is None or before.quality.protocol is None:
            raise InputError(f"{case}: the baseline's quality was not measured")
        require_alike(before.quality.protocol, now.quality.protocol)
        if now.quality.perplexity is not None and not before.quality.blocks:
            raise InputError(
                f"{case}: the baseline has no blocks to pair (an older qbench measured it); measure it again"
            )
    for was, found in ((before.protocols, now.protocols), (before.tasks, now.tasks)):
        missing = [name for name in found or {} if name not in (was or {})]
        if missing:
            raise InputError(f"{case}: the baseline was not measured on {', '.join(missing)}")


def _check(case: str, cell: Cell) -> Check:
    return Check(
        "quality",
        case,
        cell.metric,
        UNITS.get(cell.kind_of_metric, "share" if cell.unit is None else ""),
        cell.a,
        cell.b,
        loss_of(cell),
        # A block's sums are a sample each; a task's error is that of a share of many items.
        freedom=None if cell.num_blocks is None else cell.num_blocks - 1,
        floor=cell.floor or 0.0,
    )


def loss_of(cell: Cell) -> Estimate:
    """The cell's estimate as a loss: distance from no change, above 0 for the worse."""
    sign = 1 if cell.lower_is_better else -1
    neutral = 1 if cell.kind == "ratio" else 0
    found = cell.estimate
    value = sign * (found.value - neutral)
    if found.interval is None:
        return Estimate(value, found.error, p_value=found.p_value)
    low, high = sorted(sign * (end - neutral) for end in found.interval)
    return Estimate(value, found.error, low, high, found.p_value)
