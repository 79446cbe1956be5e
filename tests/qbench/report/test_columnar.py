import json
import zlib

import numpy as np
import pandas as pd
import pytest

from qbench.report.columnar import EXACT_ROWS, MANTISSA_BITS, pack, round_mantissa
from qbench.report.columns import is_missing


def unpack(data: bytes) -> dict[str, list]:
    """The slow, obvious reader of the layout, byte by byte."""
    header, data = headed(data)
    rows, columns = header["rows"], {}
    for told in header["columns"]:
        column, data = data[: told["size"]], data[told["size"] :]
        head, planes = headed(zlib.decompress(column))
        width = 8 if head["type"] == "float64" else 4
        words = [bytes(planes[plane * rows + row] for plane in range(width)) for row in range(rows)]
        if head["type"] == "codes":
            columns[told["name"]] = [head["values"][int.from_bytes(word, "little")] for word in words]
        else:
            columns[told["name"]] = [float(np.frombuffer(word, f"<f{width}")[0]) for word in words]
        assert len(planes) == width * rows
    assert not data, "nothing is left over"
    return columns


def headed(data: bytes) -> tuple[dict, bytes]:
    length = int.from_bytes(data[:4], "little")
    return json.loads(data[4 : 4 + length]), data[4 + length :]


@pytest.mark.parametrize("rows", [0, 1, 3, 131])
def test_packed_columns_come_back(rows):
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
    packed, left_out = pack(frame)
    columns = unpack(packed)
    assert left_out == [] and list(columns) == list(frame)
    for name in ("name", "sometimes", "flag"):
        assert columns[name] == [None if is_missing(value) else value for value in frame[name].tolist()]
    for name in ("repeated", "measured"):
        np.testing.assert_array_equal(np.array(columns[name], dtype=float), frame[name].to_numpy())


def test_objects_that_are_numbers_stay_numbers():
    columns = unpack(pack(pd.DataFrame({"threads": pd.Series([2, None, 1], dtype=object)}))[0])
    assert columns["threads"] == [2, None, 1]


def test_many_rows_lose_one_part_in_8192_at_most():
    values = np.random.default_rng(2).lognormal(size=EXACT_ROWS + 1)
    (packed,) = unpack(pack(pd.DataFrame({"x": values}))[0]).values()
    # Half a unit of the last bit that is kept, and as much again for the cast to float32.
    np.testing.assert_allclose(packed, values, rtol=2.0 ** -(MANTISSA_BITS + 1) + 2.0**-24)


def test_columns_without_room_are_left_out_the_last_first():
    noise = np.random.default_rng(3).standard_normal((3, 1000))  # 8 kB each, which deflate hardly shortens
    frame = pd.DataFrame({"a": noise[0], "b": noise[1], "c": noise[2], "d": "the same"})
    packed, left_out = pack(frame, room=17_000)
    assert left_out == ["c"] and list(unpack(packed)) == ["a", "b", "d"]


def test_rounding_to_fewer_bits():
    numbers = np.float32([1.0, 1.0 + 2**-8, 1.0 + 2**-9, -1.75, 0.0, np.inf, np.nan])
    # 1 + 2**-9 is halfway between 1 and 1 + 2**-8, and halves go up; NaN and Inf have no digits to lose.
    expected = np.float32([1.0, 1.0 + 2**-8, 1.0 + 2**-8, -1.75, 0.0, np.inf, np.nan])
    np.testing.assert_array_equal(round_mantissa(numbers, 8), expected)
