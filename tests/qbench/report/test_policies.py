"""Tables of KV-cache policies: marks, shares, and verdicts that are corrected for all tests of a table."""

import json
from itertools import product

import numpy as np
import pytest
from click.testing import CliRunner
from support.policy_records import WINDOWS, policy_record, policy_sweep
from support.sample_records import sweep_records, write_records

from qbench.cli.report import command
from qbench.measure.records.record import parse_record
from qbench.report import render_named
from qbench.report.policy_rows import fronts, policy_rows, policy_tests, split_policy
from quant.errors import InputError
from quant.present import present


@pytest.fixture
def shown(tmp_path):
    return lambda records: render_named("--policies", write_records(tmp_path / "records.jsonl", records))


def tables(text: str) -> list[dict[tuple[str, str], dict[str, str]]]:
    """Per table: (policy, budget) -> heading -> cell"""
    lines = text.splitlines()
    found = []
    for i, line in enumerate(lines):
        if line.startswith("| Pareto"):
            names = parts(line)
            rows = [dict(zip(names, parts(row), strict=True)) for row in lines[i + 2 :][: lines[i:].index("") - 2]]
            found.append({(row["policy"], row["budget"]): row for row in rows})
    return found


def parts(line: str) -> list[str]:
    return [part.strip() for part in line.split("|")[1:-1]]


def rows_of(records: list[dict]):
    return policy_rows([parse_record(json.dumps(record).encode()) for record in records])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("full", ("full", "")),
        ("window:64", ("window", "64")),
        ("sinks:4+60", ("sinks", "4+60")),
        ("h2o:25%,recent=0.5", ("h2o:recent=0.5", "25%")),
        ("snapkv:window=16,budget=64MiB", ("snapkv:window=16", "64MiB")),
        ("fastgen:recovery=0.95", ("fastgen:recovery=0.95", "")),
    ],
)
def test_budget_is_split_from_the_policy(text, expected):
    assert split_policy(text) == expected


def test_rows_are_sorted_by_bytes_with_shares_peaks_and_ratios(shown):
    (table,) = tables(shown(policy_sweep()))
    assert [row["held MB"] for row in table.values()] == ["0.16", "0.16", "0.56", "0.56", "2.00"]
    assert list(table)[-1] == ("full", "")
    recent, full = table["recent", "64"], table["full", ""]
    assert (recent["of full %"], recent["peak MB"]) == ("8.0", "0.17")
    assert (full["of full %"], full["peak MB"], full["speed / full [95 %]"]) == ("100.0", "2.00", "1")
    assert recent["mean KLD [95 %]"] == "3.00e-01 [2.70e-01, 3.30e-01]"
    assert recent["tg32@896 tok/s [95 %]"] == "180"
    assert recent["speed / full [95 %]"] == "not measured well enough", "one process each, not in turn"


def test_speeds_of_several_launches_have_intervals_and_ratios(shown):
    rows = policy_sweep()
    again = [json.loads(json.dumps(row)) for row in rows]
    for row, factor in zip(again, (1.01, 0.99, 1.02, 0.98, 1.0), strict=False):
        row["case"] |= {"kind": "again", "of": row["key"]}
        row["key"] = f"again-{row['key']}"
        row["metrics"]["tg_tok_s"] *= factor
    (table,) = tables(shown([*rows, *again]))
    recent = table["recent", "64"]
    assert "[" in recent["tg32@896 tok/s [95 %]"]
    assert recent["speed / full [95 %]"].startswith("0.4") and "[" in recent["speed / full [95 %]"]


def test_pareto_marks_agree_with_a_comparison_of_all_pairs(shown):
    rng = np.random.default_rng(0)
    records = [
        policy_record(f"recent:budget={i + 1}", rng.choice([0.1, 0.2, 0.3]), int(held), float(speed))
        for i, (held, speed) in enumerate(product([100_000, 200_000, 300_000], [50.0, 60.0, 70.0]))
    ]
    rows = rows_of(records)
    for cost, marks in zip(("held", "speed"), zip(*fronts(rows), strict=True), strict=True):
        points = [(row.mean_kld, row.speed.kv_bytes_held if cost == "held" else -row.speed.tg_tok_s) for row in rows]
        beaten = [any(a <= c and b <= d and (a, b) != (c, d) for a, b in points) for c, d in points]
        assert list(marks) == [not each for each in beaten] and 0 < sum(marks) < len(rows)


def test_marks_count_the_rows_of_all_kv_formats_of_a_model(shown):
    smaller = policy_record("h2o:budget=64", 0.25, 80_000, 300.0, kv_format="kv-int8")
    other_model = policy_record("h2o:budget=64", 0.01, 10_000, 900.0, model="ref:other")
    f16, int8, _ = tables(shown([*policy_sweep(), smaller, other_model]))
    assert f16["h2o", "64"]["Pareto"] == "" and int8["h2o", "64"]["Pareto"] == "bytes"
    assert f16["full", ""]["Pareto"] == "bytes speed"
    assert tables(shown(policy_sweep()))[0]["h2o", "64"]["Pareto"] == "bytes"


def test_verdicts_are_against_full_and_the_best_of_the_budget(shown):
    text = shown(policy_sweep())
    (table,) = tables(text)
    assert table["full", ""]["KLD against full, p"] == "reference"
    assert table["h2o", "64"]["against best of budget, p"] == "best"
    assert table["recent", "64"]["against best of budget, p"].startswith("worse ")
    assert table["recent", "64"]["KLD against full, p"].startswith("worse ")
    assert f"{WINDOWS} windows; p by Holm over 6 tests" in text  # four against full, one pair per budget


def test_p_values_are_corrected_for_every_pair_of_a_budget():
    near = policy_record("tova:budget=64", 0.2502, 161_000, 150.0)
    tests = policy_tests(rows_of([*policy_sweep(), near]))
    assert tests.num_tests == 5 + 3 + 1
    raw = sorted(estimate.p_value for estimate in tests.estimates.values())
    stepped = np.minimum(np.maximum.accumulate([p * (len(raw) - i) for i, p in enumerate(raw)]), 1)
    np.testing.assert_allclose(sorted(tests.p_values.values()), stepped)
    assert present(tests.p_values[3, 5]) > 0.05  # h2o and tova differ by less than their windows do


def test_records_without_windows_have_no_verdicts(shown):
    text = shown(policy_sweep(blocks=None))
    assert "No verdicts: " in text and "worse" not in text and "KLD against full" not in text


def test_quality_and_speed_in_separate_records_are_one_row(shown):
    quality, speed = policy_record("h2o:budget=64", 0.25, 0, 1.0), policy_record("h2o:budget=64", 0.0, 80_000, 300.0)
    quality["metrics"] |= {"kv_bytes_held": None, "tg_tok_s": None, "samples": None, "interval": None}
    quality["case"] |= {"bench": None}
    speed["metrics"] |= {"kld": None, "kld_interval": None, "blocks": None, "protocol": None}
    (table,) = tables(shown([quality, speed | {"key": "speed"}]))
    row = table["h2o", "64"]
    assert row["mean KLD [95 %]"].startswith("2.50e-01") and row["held MB"] == "0.08"
    assert row["tg32@896 tok/s [95 %]"] == "300"


def test_records_without_policies_are_refused(shown, tmp_path):
    with pytest.raises(InputError, match="no measured case has a cache policy other than full"):
        shown(sweep_records())
    path = str(write_records(tmp_path / "policies.jsonl", policy_sweep()))
    result = CliRunner().invoke(command, [path, "--policies"])
    assert result.exit_code == 0 and result.output.startswith("**ref:llama, bf16, kv-f16 on Some Processor**")
    assert CliRunner().invoke(command, [path, "--policies", "--json"]).exit_code == 2
    assert CliRunner().invoke(command, [path, "--policies", "--cache-table"]).exit_code == 2


def test_each_question_is_a_column_of_one_row(tmp_path):
    rows = policy_sweep()
    for question, value in (("visible", 0.75), ("hidden", 0.5)):
        asked = policy_record(
            "h2o:budget=64",
            0.25,
            160_000,
            190.0,
            tasks={"recall": {"metric": "acc", "value": value, "interval": [value / 2, 1.0]}},
        )
        asked["case"]["tasks"] = {"names": ["recall"], "question": question}
        asked["metrics"] |= {"kld": None, "blocks": None}
        rows.append(asked | {"key": question})
    text = render_named("--policies", write_records(tmp_path / "records.jsonl", rows))
    heading, _, *lines = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if "|" in line]
    found = [[line[heading.index(f"recall, {name} % [95 %]")] for name in ("visible", "hidden")] for line in lines]
    assert sorted(found) == [["75.0 [37.5, 100.0]", "50.0 [25.0, 100.0]"], *[["n/a", "n/a"]] * 4]
