"""Pictures of quality against bytes: their places, their front, and their documents."""

import itertools
import xml.etree.ElementTree as ET

import pandas as pd
import pytest

from qbench.report.picture import (
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    Axes,
    Dot,
    Picture,
    draw,
    front,
    pictures_of,
    write_pictures,
)
from quant.errors import InputError

DOTS = [Dot("a", 4.0, 1e-2, (5e-3, 2e-2)), Dot("b", 5.0, 1e-3), Dot("c", 5.5, 5e-3), Dot("<d>", 8.0, 1e-4)]


def test_front_is_all_that_nothing_beats():
    assert front(DOTS) == {"a", "b", "<d>"}
    assert front([Dot("a", 4.0, 1e-2), Dot("b", 4.0, 1e-2)]) == {"a", "b"}


def test_places_follow_the_axes():
    axes = Axes.of(DOTS)
    assert axes.ticks == (3, 4, 5, 6, 7, 8, 9) and axes.powers == (-4, -1)
    assert axes.x(3) == LEFT and axes.x(9) == WIDTH - RIGHT
    assert axes.y(1e-2) - axes.y(1e-1) == pytest.approx(axes.y(1e-3) - axes.y(1e-2), rel=1e-9)
    assert 0 < axes.y(2e-2) < axes.y(1e-4) < HEIGHT


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_document_names_every_recipe(theme):
    tree = ET.fromstring(draw(Picture("m & n", "bits per weight", tuple(DOTS)), theme))
    texts = {node.text for node in tree.iter() if node.text}
    assert {"a", "b", "c", "<d>", "m & n", "bits per weight"} <= texts
    assert sum(node.tag.endswith("circle") for node in tree.iter()) == len(DOTS)


def test_command_writes_both_themes(tmp_path):
    row = {"model": "m", "cpu": "x", "recipe": "q", "bits_per_weight": 4.5, "kld_mean": 1e-2, "kld_low": None}
    frame = pd.DataFrame([{**row, "kld_high": None}, {**row, "kld_mean": None, "kld_high": None}])
    frame = frame.astype({"kld_low": float, "kld_high": float, "kld_mean": float})
    assert [path.name for path in write_pictures(frame, tmp_path / "p.svg")] == ["p-light.svg", "p-dark.svg"]
    with pytest.raises(InputError, match="one model, got m, n"):
        write_pictures(pd.concat([frame, frame.assign(model="n")]), tmp_path / "p.svg")
    with pytest.raises(InputError, match="no row with KLD"):
        write_pictures(frame.assign(kld_mean=float("nan")), tmp_path / "p.svg")


@pytest.mark.parametrize(("first", "last"), [(0, 1), (2.5, 16), (4, 4), (512, 4096), (1.3e-3, 0.2), (1024, 1025)])
def test_ticks_enclose_the_dots(first, last):
    ticks = Axes.of([Dot("a", first, 1e-2), Dot("b", last, 1e-2)]).ticks
    assert ticks[0] <= first <= last < ticks[-1] and 2 <= len(ticks) <= 11
    assert {round((b - a) / (ticks[1] - ticks[0]), 6) for a, b in itertools.pairwise(ticks)} == {1}


def frame_of(rows):
    shared = {"model": "m", "cpu": "x", "recipe": "bf16", "kv_format": "kv-f16", "policy": "full", "kld_mean": 1e-2}
    return pd.DataFrame([{**shared, "kld_low": None, "kld_high": None, **row} for row in rows])


def test_a_table_has_a_picture_of_rows_that_differ_in_one_column():
    policies = [
        {"policy": name, "kv_bytes_held": held} for name, held in zip("abcd", (1e6, 2e6, 3e6, 4e6), strict=True)
    ]
    twice = [{**row, "kv_format": kv} for kv in ("kv-f16", "kv-int8") for row in policies]
    assert [(p.title, p.x_label, len(p.dots)) for p in pictures_of(frame_of(twice))] == [
        (f"m, {kv} on x", "KV cache held, MB", 4) for kv in ("kv-f16", "kv-int8")
    ]
    assert [dot.x for dot in pictures_of(frame_of(policies))[0].dots] == [1, 2, 3, 4]
    assert pictures_of(frame_of(policies[:3])) == []
    many = [{**row, "recipe": f"r{index}"} for index in range(5) for row in policies]
    assert pictures_of(frame_of(many)) == []
    assert pictures_of(frame_of(policies).drop(columns="kld_mean")) == []
