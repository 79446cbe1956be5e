"""The picture of quality against size: its places, its front, and its documents."""

import xml.etree.ElementTree as ET

import pandas as pd
import pytest

from qbench.report.picture import HEIGHT, LEFT, RIGHT, WIDTH, Axes, Dot, draw, front, write_pictures
from quant.errors import InputError

DOTS = [Dot("a", 4.0, 1e-2, 5e-3, 2e-2), Dot("b", 5.0, 1e-3), Dot("c", 5.5, 5e-3), Dot("<d>", 8.0, 1e-4)]


def test_front_is_all_that_nothing_beats():
    assert front(DOTS) == {"a", "b", "<d>"}
    assert front([Dot("a", 4.0, 1e-2), Dot("b", 4.0, 1e-2)]) == {"a", "b"}


def test_places_follow_the_axes():
    axes = Axes.of(DOTS)
    assert axes.bits == (3, 9) and axes.powers == (-4, -1)
    assert axes.x(3) == LEFT and axes.x(9) == WIDTH - RIGHT
    assert axes.y(1e-2) - axes.y(1e-1) == pytest.approx(axes.y(1e-3) - axes.y(1e-2), rel=1e-9)
    assert 0 < axes.y(2e-2) < axes.y(1e-4) < HEIGHT


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_document_names_every_recipe(theme):
    tree = ET.fromstring(draw(DOTS, "m & n", theme))
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
