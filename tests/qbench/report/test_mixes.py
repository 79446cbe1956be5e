"""The table of mixes: weights, KV format, policy and context, with bytes, divergence and speed."""

import json

import numpy as np
import pytest
from support.policy_records import TOKENS, WINDOWS, policy_record
from support.sample_records import write_records

from qbench.measure.records.record import parse_record
from qbench.report import render_named
from qbench.report.mixes import mixes
from quant.errors import InputError

WEIGHTS = {"bf16": 8_000_000, "q4_k_m": 2_000_000}
KLD = {"bf16": 1e-4, "q4_k_m": 2e-3}
LONG, SHORT = 1024, 512


def quality(mean: float, window: int, seed: int) -> dict:
    klds = np.random.default_rng(seed).permutation(mean * (1 + 0.1 * np.linspace(-1, 1, WINDOWS)) * TOKENS)
    blocks = {"unit": "window", "tokens": [TOKENS] * WINDOWS, "kld": klds.tolist(), "nll": [1.5 * TOKENS] * WINDOWS}
    protocol = {"name": f"windows-{window}", "hash": f"hash{window}", "window": window}
    return {"protocol": protocol, "kld": {"mean": mean}, "kld_interval": [0.9 * mean, 1.1 * mean], "blocks": blocks}


def judged(recipe: str, policy: str, kld: float) -> dict:
    """One case without a speed, under two protocols; the longer context loses twice as much."""
    both = {f"windows-{size}": quality(kld * size / SHORT, size, len(recipe + policy)) for size in (SHORT, LONG)}
    row = policy_record(policy, kld, 1, 1.0, recipe=recipe, protocols=both, size_bytes=WEIGHTS[recipe])
    row["case"] |= {"context": None, "bench": None}
    for name in ("samples", "interval", "tg_tok_s", "pp_tok_s", "spread", "kv_bytes_held"):
        row["metrics"].pop(name, None)
    return row | {"key": f"quality {recipe} {policy}"}


def timed(recipe: str, policy: str, context: int, held: int, speed: float) -> dict:
    row = policy_record(policy, 1.0, held, speed, recipe=recipe, size_bytes=WEIGHTS[recipe])
    row["case"] |= {"context": context, "bench": {"pp": 64, "tg": 32, "depth": context - 64}, "eval": None}
    for name in ("kld", "kld_interval", "blocks", "protocol", "perplexity", "reference"):
        row["metrics"].pop(name, None)
    return row | {"key": f"speed {recipe} {policy} {context}"}


@pytest.fixture
def records() -> list[dict]:
    found = []
    for recipe in WEIGHTS:
        for policy, loss, share, speed in (("full", 0.0, 1.0, 100.0), ("h2o:budget=25%", 1e-3, 0.25, 150.0)):
            found.append(judged(recipe, policy, KLD[recipe] + loss))
            for context in (SHORT, LONG):
                found.append(timed(recipe, policy, context, int(4000 * context * share), speed))
    return found


def test_one_table_has_a_row_per_mix_and_context(records, tmp_path):
    lines = [
        line
        for line in render_named("--mixes", write_records(tmp_path / "r.jsonl", records)).splitlines()
        if line[:1] == "|"
    ]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    rows = [dict(zip(cells[0], each, strict=True)) for each in cells[2:]]
    assert [(row["context"], row["weights"], row["policy"]) for row in rows] == [
        (str(context), recipe, policy)
        for context in (SHORT, LONG)
        for recipe in ("q4_k_m", "bf16")
        for policy in ("h2o:budget=25%", "full")
    ]
    assert [row["both MB"] for row in rows[:4]] == ["2.51", "4.05", "8.51", "10.05"]
    assert [row["mean KLD [95 %]"].split()[0] for row in rows[3::4]] == ["1.00e-04", "2.00e-04"]
    best = [row["KLD over the best as small [95 %]"] for row in rows]
    assert [text.split()[0] for text in best] == ["best"] * 8
    assert [row["Pareto"] for row in rows[:4]] == ["bytes", "bytes", "bytes speed", "bytes speed"]
    assert rows[3]["speed / largest [95 %]"] == "1"
    assert rows[2]["speed / largest [95 %]"] == "not measured well enough"  # one process each


def test_a_larger_row_that_loses_more_names_the_smaller_one(records, tmp_path):
    records[6] = judged("q4_k_m", "full", 1e-5)  # better than bf16, in fewer bytes
    text = render_named("--mixes", write_records(tmp_path / "r.jsonl", records))
    rows = [line for line in text.splitlines() if f"| {SHORT} " in line]
    (ratio,) = [line.split("|")[11].strip() for line in rows if "bf16" in line and " full " in line]
    value, low, high, place = (ratio.split()[i].strip("[],") for i in (0, 1, 2, 5))
    assert value == "10" and float(low) < 10 < float(high) and place == "2"
    assert "bytes" not in next(line for line in rows if "bf16" in line and " full " in line).split("|")[1]


def test_a_mix_needs_both(records, tmp_path):
    typed = [parse_record(json.dumps(record).encode()) for record in records]
    assert len(mixes(typed)) == 8
    assert not mixes([record for record in typed if record.model_case.speed])
    assert not mixes([record for record in typed if not record.model_case.speed])
    alone = write_records(tmp_path / "r.jsonl", [record for record in records if record["case"]["bench"]])
    with pytest.raises(InputError, match=r"windows as long as the context.*mixes-quality"):
        render_named("--mixes", alone)
