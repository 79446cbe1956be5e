"""A store with given scales and magnitudes beyond float8, compared with torch's casts."""

import numpy as np
import pytest
import torch

from cpu_kernels import KVStore
from quant.kv.fp8 import Fp8

INF = np.inf
# The largest finite code, and the least magnitude that is nearer to its successor: 65536 and 480.
LARGEST = {"e4m3": (448.0, 464.0), "e5m2": (57344.0, 61440.0)}
DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
HEAD_DIM = 16


def kept(name: str, values: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Decoded keys and values of these; scale 1."""
    one = np.ones(1, np.float32)
    store = KVStore(name, 1, 16, 1, HEAD_DIM, "given", one, one)
    x = np.zeros((1, 1, 1, HEAD_DIM), np.float32)
    x[..., : len(values)] = values
    where = (np.zeros((1, 1), np.int32), np.ones(1, np.int64))
    store.append(x, x, *where)
    keys, held = np.empty_like(x), np.empty_like(x)
    store.read(*where, keys, held)
    return keys[0, 0, 0, : len(values)], held[0, 0, 0, : len(values)]


def cast(name: str, values: list[float]) -> np.ndarray:
    return torch.tensor(values).to(DTYPES[name]).float().numpy()


@pytest.mark.parametrize("name", DTYPES)
def test_values_that_round_to_a_finite_code_match_torch_casts(name):
    largest, edge = LARGEST[name]
    below = float(np.nextafter(np.float32(edge), np.float32(0)))
    values = [0.0, 1.0, -1.06, 2.0**-20, largest, below, -below, np.nan]
    for got in kept(name, values):
        np.testing.assert_array_equal(got, cast(name, values))
        assert got[5] == largest


@pytest.mark.parametrize("name", DTYPES)
def test_larger_values_are_clipped(name):
    largest, edge = LARGEST[name]
    for got in kept(name, [edge, 1e30, INF, -edge, -1e30, -INF]):
        assert got.tolist() == [largest] * 3 + [-largest] * 3
    x = torch.tensor([edge, 1e30, INF, -edge, -1e30, -INF]).reshape(1, 1, 1, 6)
    codec = Fp8(str(DTYPES[name]).removeprefix("torch."), per="head", calibrated=True)
    np.testing.assert_array_equal(codec.round_trip(x, torch.ones(1)).flatten().numpy(), got)


def test_where_torch_has_infinities_a_store_has_the_largest_code():
    """torch's e5m2 alone: from 61440 on, which is as near to 65536 as to 57344, its codes are infinite."""
    assert cast("e5m2", [61439.0, 61440.0, INF, -INF]).tolist() == [57344.0, INF, INF, -INF]
    assert kept("e5m2", [61439.0, 61440.0, INF, -INF])[0].tolist() == [57344.0] * 3 + [-57344.0]


@pytest.mark.parametrize("name", DTYPES)
def test_a_scale_found_for_an_infinity_leaves_nothing(name):
    store = KVStore(name, 1, 16, 1, HEAD_DIM, "per_head")
    x = np.ones((1, 1, 1, HEAD_DIM), np.float32)
    x[..., 3] = INF
    where = (np.zeros((1, 1), np.int32), np.ones(1, np.int64))
    store.append(x, x, *where)
    keys, values = np.zeros_like(x), np.zeros_like(x)
    store.read(*where, keys, values)
    assert np.isnan(keys).all() and np.isnan(values).all()
    assert Fp8(str(DTYPES[name]).removeprefix("torch."), per="head").round_trip(torch.from_numpy(x)).isnan().all()
