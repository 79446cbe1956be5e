"""Per-block sums as a record keeps them."""

from collections.abc import Sequence
from typing import Any


def blocks(*, tokens: Sequence[int], unit: str = "window", **sums: Sequence[float]) -> dict[str, Any]:
    plain = {name: [float(value) for value in values] for name, values in sums.items()}
    return {"unit": unit, "tokens": [int(count) for count in tokens], **plain}
