"""Costs that are put into rows come out of the fit."""

from dataclasses import asdict, replace

import pytest
from support.architectures import small_config

from qbench.mla.fit import _terms, fit_costs, fit_kept
from qbench.mla.measure import ModePoint
from qbench.runtime.attention.mla_costs import COSTS
from quant.errors import InputError
from quant.models import ModelConfig

HEADS = {"num_attention_heads": 8, "num_key_value_heads": 8}
CONFIGS = {
    "small": ModelConfig.from_hf(small_config("deepseek2", kv_lora_rank=64)),
    "large": ModelConfig.from_hf(small_config("deepseek2", kv_lora_rank=512, qk_nope_head_dim=96, **HEADS)),
}


def rows_of(costs: dict[str, float]) -> list[ModePoint]:
    cases = [(model, held, new) for model in CONFIGS for held in (0, 60, 900) for new in (2, 40, 300)]
    rows = [
        ModePoint(model, held, 1, new, mode, 0.0) for model, held, new in cases for mode in ("elided", "compressed")
    ]
    terms = [_terms(row, CONFIGS[row.model]) for row in rows]
    times = [1e-6 * sum(count * costs[name] for name, count in each.items()) for each in terms]
    return [replace(row, ms=ms) for row, ms in zip(rows, times, strict=True)]


def test_costs_of_rows_that_have_them():
    costs = asdict(COSTS) | {"passes": 5e4, "projected": 0.01}
    assert fit_costs(rows_of(costs), CONFIGS) == pytest.approx(costs, rel=1e-6)


def test_no_term_costs_less_than_nothing():
    costs = asdict(COSTS) | {"passes": 5e4, "projected": 0.01, "moved": -0.5}
    found = fit_costs(rows_of(costs), CONFIGS)
    assert found["moved"] == 0 and min(found.values()) == 0


def test_a_file_that_cannot_separate_terms_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match="0 rows of 0 models, expected 16 or more"):
        fit_kept(str(path))
    with pytest.raises(InputError, match="nowhere"):
        fit_kept(str(tmp_path / "nowhere.jsonl"))
