"""Figures of a comparison as people read them."""

from collections.abc import Callable

from qbench.comparison.comparison import ONE_LAUNCH
from qbench.statistics.cell import Cell
from qbench.statistics.estimate import Estimate

MISSING = "n/a"
BYTES = ("size_bytes", "kv_bytes_per_token")
HEADINGS = {
    "kld": "mean KLD",
    "same_top": "same top",
    "size_bytes": "size",
    "kv_bytes_per_token": "KV/token",
    "pp_tok_s": "pp tok/s",
    "tg_tok_s": "tg tok/s",
}
FACTOR = 3  # a ratio beyond this reads better as one than in percent


def heading(metric: str) -> str:
    """A metric's name for people, its convention kept."""
    name, space, convention = metric.partition(" (")
    return HEADINGS.get(name, name) + space + convention


def value(cell: Cell, number: float) -> str:
    """A metric's own value."""
    if cell.kind_of_metric in BYTES:
        return f"{number:,.0f} B" if number < 1e5 else f"{number / 1e6:,.2f} MB"
    if cell.metric.startswith("perplexity"):
        return f"{number:.4f}"
    if cell.kind_of_metric == "kld":
        return f"{number:.3e}"
    if cell.unit is not None:
        return f"{number:.4g}"
    if cell.metric.endswith("tok_s"):
        return f"{number:,.1f}"
    return f"{100 * number:.2f} %"


def change(cell: Cell) -> str:
    """ "+1.23 % [+1.02, +1.44]": B over A or B minus A, with the 95 % interval."""
    estimate = cell.estimate
    if cell.kind == "ratio":
        write, unit = _ratio(estimate)
    elif cell.unit is not None:
        write, unit = _signed(lambda number: f"{number:+.3g}"), f" {cell.unit}"
    elif cell.kind_of_metric == "kld":
        write, unit = _signed(lambda number: f"{number:+.2e}"), ""
    else:
        write, unit = _signed(lambda number: f"{100 * number:+.2f}"), " points"
    if cell.exact:
        return f"{write(estimate.value)}{unit}"
    is_known = estimate.interval is not None and cell.note != ONE_LAUNCH
    interval = ", ".join(map(write, estimate.interval or ())) if is_known else MISSING
    return f"{write(estimate.value)}{unit} [{interval}]"


def _ratio(estimate: Estimate) -> tuple[Callable[[float], str], str]:
    if estimate.value > FACTOR:
        return lambda ratio: f"{ratio:.2f} times", ""
    ends = [end for end in (estimate.value, estimate.low, estimate.high) if end is not None]
    size = max(abs(end - 1) for end in ends)
    digits = 4 if size < 1e-3 else 2 if size < 0.1 else 1
    return _signed(lambda ratio: f"{100 * (ratio - 1):+.{digits}f}"), " %"


def _signed(write: Callable[[float], str]) -> Callable[[float], str]:
    """Zero without a sign, however it came out."""

    def written(number: float) -> str:
        text = write(number)
        return text if text.strip("+-0.e") else "0"

    return written


def verdict(cell: Cell) -> str:
    if cell.is_within_floor:
        return "same, within the floor"
    return cell.verdict or MISSING


def distance(cell: Cell, size: float | None) -> str:
    """A floor or a smallest difference, in the unit of the change."""
    if size is None:
        return MISSING
    if cell.kind_of_metric == "kld":
        return f"{size:.1e}"
    if cell.unit is not None and cell.kind == "difference":
        return f"{size:.2g}"
    return f"{100 * size:{'.0f' if size > 1 else '.2g'}} {'%' if cell.kind == 'ratio' else 'points'}"


def probability(p_value: float | None) -> str:
    if p_value is None:
        return MISSING
    return "< 0.001" if p_value < 1e-3 else f"{p_value:.3f}" if p_value < 0.1 else f"{p_value:.2f}"


MOST_NEEDED = 1_000_000


def needed(cell: Cell) -> str:
    """ "410 blocks", "over 1,000,000 items": so many would decide a change as large as the one found; "" if no number
    does
    """
    if cell.needed is None:
        return ""
    unit = "blocks"
    if cell.metric.endswith("tok_s"):
        unit = "launches"
    elif cell.flips is not None or cell.unit is not None:
        unit = "items"
    return f"over {MOST_NEEDED:,} {unit}" if cell.needed > MOST_NEEDED else f"{cell.needed:,} {unit}"


def flips(cell: Cell) -> str:
    """ "; 12 lost, 3 gained of 200" of a task's items."""
    if cell.flips is None:
        return ""
    flips = cell.flips
    return f"; {flips.right_to_wrong} lost, {flips.wrong_to_right} gained of {flips.num_items}"
