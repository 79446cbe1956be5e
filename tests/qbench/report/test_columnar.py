import json

import numpy as np
import pandas as pd
import pytest

from qbench.report.columnar import EXACT_ROWS, MANTISSA_BITS, pack, round_mantissa
from qbench.report.columns import is_missing


def unpack(data: bytes) -> dict[str, list]:
    """The slow, obvious reader of the layout, byte by byte."""
    length = int.from_bytes(data[:4], "little")
    header, at, columns = json.loads(data[4 : 4 + length]), 4 + length, {}
    rows = header["rows"]
    for head in header["columns"]:
        planes = data[at : at + head["size"]]
        width = 8 if head["type"] == "float64" else 4
        words = [bytes(planes[plane * rows + row] for plane in range(width)) for row in range(rows)]
        if head["type"] == "codes":
            columns[head["name"]] = [head["values"][int.from_bytes(word, "little")] for word in words]
        else:
            columns[head["name"]] = [float(np.frombuffer(word, f"<f{width}")[0]) for word in words]
        at += head["size"]
    assert at == len(data), "nothing is left over"
    return columns


@pytest.mark.parametrize("rows", [0, 1, 3, 131])
def test_what_is_packed_comes_out(rows):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "name": [f"r</script>{i % 7}é" for i in range(rows)],
            "sometimes": [None if i % 3 == 0 else "x" for i in range(rows)],
            "flag": [i % 2 == 0 for i in range(rows)],
            "repeated": [512.0 if i % 2 else np.nan for i in range(rows)],
            "measured": rng.standard_normal(rows),
        }
    )
    columns = unpack(pack(frame))
    for name in ("name", "sometimes", "flag"):
        assert columns[name] == [None if is_missing(value) else value for value in frame[name].tolist()]
    for name in ("repeated", "measured"):
        np.testing.assert_array_equal(np.array(columns[name], dtype=float), frame[name].to_numpy())


def test_objects_that_are_numbers_stay_numbers():
    columns = unpack(pack(pd.DataFrame({"threads": pd.Series([2, None, 1], dtype=object)})))
    assert columns["threads"] == [2, None, 1]


def test_many_rows_lose_less_than_the_fifth_digit():
    values = np.random.default_rng(2).lognormal(size=EXACT_ROWS + 1)
    (packed,) = unpack(pack(pd.DataFrame({"x": values}))).values()
    # Half a unit of the last bit that is kept, and as much again for the cast to float32.
    np.testing.assert_allclose(packed, values, rtol=2.0 ** -(MANTISSA_BITS + 1) + 2.0**-24)


def test_rounding_to_fewer_bits():
    numbers = np.float32([1.0, 1.0 + 2**-8, 1.0 + 2**-9, -1.75, 0.0, np.inf, np.nan])
    # 1 + 2**-9 lies halfway between 1 and 1 + 2**-8, and halves go up; NaN and Inf have no digits to lose.
    expected = np.float32([1.0, 1.0 + 2**-8, 1.0 + 2**-8, -1.75, 0.0, np.inf, np.nan])
    np.testing.assert_array_equal(round_mantissa(numbers, 8), expected)
