"""A sample of the parameter sets of each test function: the same one in every run, and every value is in it."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable

import pytest

GRID = 16  # parameter sets per test function in `make test`, and more if there are more values; see planted_faults.py


def sample_grids(items: Iterable[pytest.Item], most: int) -> set[pytest.Item]:
    """At most `most` items per test function; more only if its parameter values are more.

    Tests that are marked as skipped cost nothing and are all kept, so that the run can count them.
    """
    grids: dict[str, list[pytest.Item]] = defaultdict(list)
    kept = set()
    for item in items:
        if hasattr(item, "callspec") and item.get_closest_marker("skip") is None:
            grids[item.nodeid.partition("[")[0]].append(item)
        else:
            kept.add(item)
    for grid in grids.values():
        kept.update(_sample(grid, most))
    return kept


def _sample(grid: list[pytest.Item], most: int) -> list[pytest.Item]:
    """First the items that show a value that no item before them shows, then others up to `most`."""
    shuffled = sorted(grid, key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())
    seen: set[tuple[str, object]] = set()
    showing, rest = [], []
    for item in shuffled:
        values = {_value(item, name) for name in item.callspec.params}
        (rest if values <= seen else showing).append(item)
        seen |= values
    return [*showing, *rest[: max(0, most - len(showing))]]


def _value(item: pytest.Item, name: str) -> tuple[str, object]:
    """The parameter's value if it can be compared, else its identity, which all its items share.

    pytest's `callspec.indices` count items, not values.
    """
    value = item.callspec.params[name]
    return name, value if isinstance(value, str | int | float | None) else id(value)
