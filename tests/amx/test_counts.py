"""The exact number of tile instructions of a product, and the bound that follows."""

import json
from pathlib import Path

import pytest
from support import amx

import cpu_kernels

SCRIPT = Path(__file__).with_name("count_products.py")
FORMATS = sorted(
    row["op"].removeprefix("linear_")
    for row in cpu_kernels.op_table()
    if row["impl"] == "amx" and row["op"].startswith("linear_") and row["op"] != "linear_llm_int8"  # w8a8's products
)
FEATURES = {"w8a8": 64}  # that one tile instruction sums: as many as a row of a tile has bytes for
OTHERS = 32


@pytest.fixture(scope="module")
def counts(kernels_emulator) -> dict[str, list[dict[str, int]]]:
    done = amx.run_emulated(kernels_emulator, [*amx.PYTHON, str(SCRIPT)])
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif("amx" in cpu_kernels.features(), reason="nothing is counted where AMX is real")
@pytest.mark.parametrize("product", FORMATS)
def test_products_match_the_shape(counts, amx_bounds, product):
    whole, ragged = counts[product]
    steps = 512 // FEATURES.get(product, OTHERS)
    num_products = [sum(count[op] for op in amx.PRODUCTS) for count in (whole, ragged)]
    assert num_products == [3 * 4 * steps, 3 * 3 * steps]  # tiles of tokens x panels x steps
    assert whole["ldtilecfg"] == whole["tilerelease"] > 0
    cycles = amx.least_cycles(whole)
    amx_bounds(product, 48 * 64 * 512 / cycles)
