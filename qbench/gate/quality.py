"""Quality: perplexity and divergence block by block, tasks item by item, each against the baseline's own."""

import math
from collections.abc import Mapping
from typing import Any

from qbench.gate.check import Check
from qbench.gate.pairing import Pair
from qbench.statistics import Cell, Estimate, Floors, require_same_protocol, with_floors
from qbench.statistics.comparison import collect
from quant.errors import InputError

# Of a comparison's metrics, what speaks for others too: same_top follows the KLD, with more noise.
LEFT = ("same_top", "size_bytes", "kv_bytes_per_token", "pp_tok_s", "tg_tok_s")
UNITS = {"perplexity": "", "kld": "nats"}  # by the kind of metric; of a task's items right or wrong it is "share"


def quality_checks(pair: Pair, floors: Floors) -> list[Check]:
    """Perplexity, KLD and tasks of one case; [] where it evaluates none.

    floors   protocol hash -> "perplexity" or "kld" -> the loss that the same model shows against itself
    raises   InputError for rows of unlike protocols or items, and where the baseline lacks what pairs with this run
    """
    before, now = pair.baseline["metrics"], pair.now["metrics"]
    _require_alike(pair.name, before, now)
    if "protocol" in now and now["perplexity"] is None:
        if before["perplexity"] is None:
            raise InputError(f"{pair.name}: the baseline's logits were not finite either, so nothing can be compared")
        broken = Estimate(math.inf)
        return [Check("quality", pair.name, "perplexity", "", before["perplexity"], math.nan, broken, is_exact=True)]
    compared = collect(pair.baseline, pair.now)
    left_out = [why for why in compared.left_out if not why.startswith("speed")]
    if left_out:
        raise InputError(f"{pair.name}: {left_out[0]}")
    cells = [cell for cell in with_floors(compared.cells, floors) if cell.kind_of_metric not in LEFT and cell.is_tested]
    return [_check(pair.name, cell) for cell in cells]


def _require_alike(case: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if "protocol" in now:
        if "protocol" not in before:
            raise InputError(f"{case}: the baseline's quality was not measured")
        require_same_protocol(before["protocol"], now["protocol"])
        if now["perplexity"] is not None and not before.get("blocks"):
            raise InputError(
                f"{case}: the baseline has no blocks to pair (an older qbench measured it); measure it again"
            )
    for kind in ("protocols", "tasks"):
        missing = [name for name in now.get(kind) or {} if name not in (before.get(kind) or {})]
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
    ends = [] if found.low is None else sorted(sign * (end - neutral) for end in (found.low, found.high))
    return Estimate(sign * (found.value - neutral), found.error, *(ends or (None, None)), found.p_value)
