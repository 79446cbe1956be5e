"""Plots show the figures of the records, in the units of the report."""

import numpy as np
import pytest

import qbench
from quant.errors import InputError


@pytest.fixture(scope="module")
def rows():
    return qbench.results("results/quickstart")


def test_points_and_whiskers_match_the_records(rows):
    (points,) = qbench.plot(rows).data
    assert list(points.text) == list(rows["recipe"])
    assert np.allclose(points.x, rows["size_bytes"] / 1e6, rtol=1e-12)
    assert np.allclose(points.y + points.error_y.array, rows["kld_high"], rtol=1e-12)
    assert np.allclose(points.y - points.error_y.arrayminus, rows["kld_low"], rtol=1e-12)


def test_groups_that_cannot_be_compared_are_drawn_apart(rows):
    changed = rows.assign(group=["a", *["b"] * (len(rows) - 1)])
    assert [len(points.x) for points in qbench.plot(changed).data] == [1, len(rows) - 1]


def test_axes_name_their_units_and_divergences_are_logarithmic():
    layout = qbench.plot("results/quickstart").layout
    assert layout.xaxis.title.text == "size MB" and layout.xaxis.type == "linear" and layout.yaxis.type == "log"


def test_columns_that_cannot_be_drawn_are_named(rows):
    with pytest.raises(InputError, match=r"column 'recipe' has no numbers, expected one of .*size_bytes"):
        qbench.plot(rows, x="recipe")
    with pytest.raises(InputError, match="no row has both size_bytes and kld_mean"):
        qbench.plot(rows.assign(kld_mean=np.nan))
