"""Losses together against the sum of losses alone, on records whose losses are made up."""

import json
from itertools import product

import numpy as np
import pytest
from click.testing import CliRunner
from support.policy_records import TOKENS, WINDOWS, policy_record, policy_sweep
from support.sample_records import write_records

from qbench.cli.report import command
from qbench.measure.records.record import parse_record
from qbench.report import render_named
from qbench.report.interaction_rows import Grid, interaction_grids
from qbench.statistics.intervals import block_mean
from qbench.statistics.paired import Together, kld_excess
from quant.errors import InputError
from quant.present import present

RECIPES = {"bf16": 0.0, "q8_0": 1e-3, "q4_k_m": 2e-2}
KV_FORMATS = {"kv-f16": 0.0, "kv-int4": 5e-3}
POLICIES = {"full": 0.0, "h2o:budget=64": 4e-2, "recent:budget=64": 6e-2}
FLOOR = 1e-6


def records(together: float = 0.0, noise: float = 0.02) -> list[dict]:
    """Every combination; `together` is added to the loss if all three axes lose."""
    found = []
    for seed, ((recipe, a), (kv, b), (policy, c)) in enumerate(
        product(RECIPES.items(), KV_FORMATS.items(), POLICIES.items())
    ):
        kld = FLOOR + a + b + c + (together if a and b and c else 0.0)
        windows = kld * (1 + noise * np.random.default_rng(seed).standard_normal(WINDOWS))
        blocks = {"unit": "window", "tokens": [TOKENS] * WINDOWS, "kld": (windows * TOKENS).tolist()}
        row = policy_record(policy, float(windows.mean()), 1000, 100.0, kv_format=kv, recipe=recipe, blocks=blocks)
        found.append(row)
    return found[::-1]  # the baseline is found, not the first


def grid_of(rows: list[dict]) -> Grid:
    (grid,) = interaction_grids(parse_record(json.dumps(row).encode()) for row in rows)
    return grid


def test_excess_is_the_whole_minus_the_floor_and_the_parts():
    rng = np.random.default_rng(0)
    base, a, b, whole = rng.uniform(0, 1, (4, WINDOWS))
    tokens = [TOKENS] * WINDOWS

    class Blocks:
        unit, units, nll, same_top = "window", None, None, None

        def __init__(self, kld: np.ndarray) -> None:
            self.kld, self.tokens = kld.tolist(), tokens

    got = kld_excess([Together(Blocks(whole), [Blocks(a), Blocks(b)], Blocks(base))])
    expected = block_mean(whole - (base + (a - base) + (b - base)), tokens)
    assert got.value == pytest.approx(expected.value, rel=1e-12) and got.interval == pytest.approx(expected.interval)


def test_baseline_and_cells():
    grid = grid_of(records())
    assert grid.baseline == ("bf16", "kv-f16", "full")
    assert len(grid.cells) == 18 - 1 - (2 + 1 + 2)  # without the baseline and the losses alone
    cell = grid.cells["q4_k_m", "kv-int4", "h2o:budget=64"]
    assert cell.expected == pytest.approx(2e-2 + 5e-3 + 4e-2, rel=0.05)
    assert grid.num_tests == len(grid.cells)


def test_sums_pass_and_an_excess_is_found():
    assert all(present(cell.p_value) > 0.01 for cell in grid_of(records()).cells.values())
    cells = grid_of(records(together=2e-2)).cells
    three = {levels for levels in cells if all(a != b for a, b in zip(levels, ("bf16", "kv-f16", "full"), strict=True))}
    assert {levels for levels, cell in cells.items() if present(cell.p_value) < 0.05} == three and len(three) == 4
    assert all(present(cells[levels].excess).value == pytest.approx(2e-2, rel=0.3) for levels in three)


@pytest.mark.parametrize("together", [0.0, 2e-2])
def test_pooled_ratio_is_that_of_all_losses(together):
    grid = grid_of(records(together))
    cells = list(grid.cells.values())
    ratio = present(grid.pooled(cells))
    assert ratio.value == pytest.approx(sum(c.whole for c in cells) / sum(c.expected for c in cells), rel=1e-9)
    assert (present(ratio.low) < 1 < present(ratio.high)) == (not together)


def test_p_values_are_corrected_over_all_cells():
    grid = grid_of(records())
    raw = sorted(present(present(cell.excess).p_value) for cell in grid.cells.values())
    stepped = np.minimum(np.maximum.accumulate([p * (len(raw) - i) for i, p in enumerate(raw)]), 1)
    np.testing.assert_allclose(sorted(present(cell.p_value) for cell in grid.cells.values()), stepped)


def test_a_cell_needs_all_of_its_parts():
    rows = [row for row in records() if row["key"] != "ref:llama bf16 kv-int4 full"]
    assert all("kv-int4" not in levels for levels in grid_of(rows).cells)


def test_tables_name_their_baseline_and_tests(tmp_path):
    text = render_named("--interaction", write_records(tmp_path / "records.jsonl", records(together=2e-2)))
    assert "| recipe + KV format + policy |     4 |" in text
    assert "| KV format kv-int4 " in text and "| KV format kv-f16 " in text
    (line,) = [line for line in text.splitlines() if line.startswith("| h2o") and " +)" in line]
    assert line.count(" +)") == 2  # of kv-int4, the two recipes that lose
    assert "(the others at the baseline bf16, kv-f16, full)" in text
    assert f"paired over {WINDOWS} windows, p < 0.05 by Holm over 12 tests" in text


def test_records_without_windows_have_ratios_and_no_signs(tmp_path):
    rows = [row | {"metrics": row["metrics"] | {"blocks": None}} for row in records(together=2e-2)]
    text = render_named("--interaction", write_records(tmp_path / "records.jsonl", rows))
    assert "+)" not in text and "(1.2" in text and "too few blocks" in text


def test_bad_input(tmp_path):
    path = str(write_records(tmp_path / "records.jsonl", policy_sweep()))
    with pytest.raises(InputError, match="no measured case loses by two of recipe, KV format and policy"):
        render_named("--interaction", path)
    for options in (["--policies"], ["--json"], ["--columns", "recipe"]):
        assert CliRunner().invoke(command, [path, "--interaction", *options]).exit_code == 2
