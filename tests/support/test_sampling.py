from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace

import pytest
from support.sampling import sample_grids


@dataclass(frozen=True)
class Item:
    nodeid: str
    callspec: SimpleNamespace = field(hash=False, compare=False, default=None)
    skipped: bool = False

    def get_closest_marker(self, name: str) -> bool | None:
        return True if self.skipped and name == "skip" else None


class Plain:
    nodeid = "tests/test_a.py::test_without_parameters"


def call(params: dict[str, object]) -> SimpleNamespace:
    return SimpleNamespace(params=params)


def grid(*sizes: int) -> list[Item]:
    names = "abcdef"[: len(sizes)]
    return [
        Item(
            f"tests/test_a.py::test_b[{'-'.join(map(str, at))}]",
            call(dict(zip(names, at, strict=True))),
        )
        for at in product(*map(range, sizes))
    ]


@pytest.mark.parametrize("most", [1, 12, 40])
def test_every_value_is_in_the_sample(most):
    items = grid(5, 7, 3)
    kept = sample_grids(items, most)
    for name, size in zip("abc", (5, 7, 3), strict=True):
        assert {item.callspec.params[name] for item in kept} == {*range(size)}
    assert len(kept) == most if most == 40 else len(kept) < 20
    assert kept == sample_grids(items[::-1], most)


def test_values_that_are_no_scalars_count_once():
    values = [(1, 2), {3: 4}]
    items = [Item(f"tests/test_a.py::test_b[{a}-{b}]", call({"a": a, "b": b})) for a, b in product(range(20), values)]
    kept = sample_grids(items, 4)
    assert len(kept) == 20 and {id(item.callspec.params["b"]) for item in kept} == {*map(id, values)}


def test_small_grids_skips_and_tests_without_parameters_stay():
    skipped = Item("tests/test_a.py::test_b[x]", call({"a": 0}), skipped=True)
    items = [*grid(2, 2), skipped, Plain()]
    assert sample_grids(items, 4) == {*items}
