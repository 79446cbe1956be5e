"""Tables of rows that other commands than sweeps kept."""

import pytest
from support.sample_records import failed_record, make_record, write_records

from qbench.cli.rank_compare import CASE_KEYS as RANKS_KEYS
from qbench.comparison.several_ranks import REFUSED, WITHIN, RankDistance
from qbench.measure.quality_figures import AttentionDelta
from qbench.measure.rank_figures import Exchange
from qbench.measure.records.kept_ranks import RanksMetrics
from qbench.report import render_report
from qbench.run.rank_layout import RankLayout

SPREAD = {"median": 2.0, "min": 1.5, "max": 2.5, "mad": 0.1}


def of_kind(case: dict, metrics: dict) -> dict:
    key = "-".join(str(value) for value in case.values())
    return make_record("q8_0") | {"key": key, "case": case, "metrics": metrics}


def serving(samples: int = 3, threads: int = 2) -> dict:
    case = {
        "kind": "throughput",
        "model": "some/m.gguf",
        "recipe": None,
        "kv_format": "kv-f16",
        "workload": "8 x 4-8+4-8",
    }
    side = {"tok_s": 99.5, "computed": 640, "ttft_ms": 250.0, "same_text": 0.5, "samples": [1.0] * samples}
    contenders = {"engine": side | {"ratio": SPREAD}, "static batches": side | {"ratio": SPREAD}}
    return of_kind(case | {"batch": 4, "threads": threads, "clock": "wall"}, {"contenders": contenders})


def latent(plan: str, tokens: int = 1, model: str = "rand:tiny-mla") -> dict:
    case = {"kind": "mla", "model": model, "kv_format": None, "threads": 2, "clock": "wall", "context": 512, "batch": 1}
    figures = {"kv_bytes_per_token": 1152, "flop_per_token": 45.4e6, "ms": 1.5, "samples_ms": [1.5, 1.25, 2.0]}
    return of_kind(case | {"tokens": tokens, "mode": plan}, figures | {"picked": plan == "absorbed", "peak_bytes": 8e5})


def planned(**more) -> dict:
    case = {"kind": "plan", "model": "shape:x", "recipe": None, "kv_format": None, "context": 64, "batch": 1}
    case |= {"cache": "dynamic", "policy": "full", "forward_tokens": 64}
    parts = {"resident_bytes": 1e9, "kv_bytes": 2e9, "workspace_bytes": 5e8, "total_bytes": 3.5e9}
    return of_kind(case, parts | more)


@pytest.fixture
def markdown(tmp_path):
    return lambda rows: render_report(write_records(tmp_path / "records.jsonl", rows), "md")


def rows_of(text: str) -> list[list[str]]:
    """Rows of every table, without headings and rules."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    rules = [i for i, row in enumerate(cells) if set("".join(row)) <= set("-:")]
    return [row for i, row in enumerate(cells) if i not in rules and i + 1 not in rules]


def test_each_contender_of_a_workload_is_a_row(markdown):
    rows = rows_of(markdown([serving()]))
    about = ["m.gguf", "kv-f16", "8 x 4-8+4-8", "4"]
    figures = ["99.5", "640", "0.25", "2.00x [1.50, 2.50]", "50 %"]
    assert rows == [[*about, "engine", *figures], [*about, "static batches", *figures]]


def test_one_round_decides_nothing(markdown):
    assert [row[8] for row in rows_of(markdown([serving(samples=1)]))] == ["undecided: 2.00x (no interval)"] * 2


def test_latent_plans_are_listed_by_tokens_with_the_choice_of_the_runtime(markdown):
    text = markdown([latent("absorbed", 512), latent("compressed"), latent("absorbed")])
    assert [(row[0], row[3]) for row in rows_of(text)] == [
        ("1", "compressed"),
        ("1", "absorbed *"),
        ("512", "absorbed *"),
    ]
    assert rows_of(text)[0][4:] == ["1152", "45.4", "1.500 [1.250, 2.000]", "0.8"]
    assert "rand:tiny-mla; KV cache in float32; 2 threads of 2 cores" in text


def test_only_the_options_of_a_plan_are_shown(markdown):
    (row,) = rows_of(markdown([planned(fits=False, memory_bytes=2e9)]))
    assert row[7:] == ["1.000", "2.000", "0.500", "3.500", "not in 2.0 GB", "n/a", "n/a", "n/a"]
    (row,) = rows_of(markdown([planned(predicted_peak_bytes=3.6e9, peak_rss_bytes=4e9, ratio=0.9)]))
    assert row[11:] == ["n/a", "3.600", "4.000", "0.900"]


def test_rows_that_share_no_settings_share_no_table(markdown):
    text = markdown([serving(threads=1), serving(threads=2), latent("absorbed"), latent("absorbed", model="other")])
    assert text.count("**Many requests at once on") == 2 and text.count("**Modes of latent attention") == 2
    assert text.index("Many requests") < text.index("Modes of latent attention")


def divided(layout: RankLayout, **found) -> dict:
    row = RankDistance("ref:llama", "q8_0", None, "dense", layout, "fast", RanksMetrics(**found)).to_json()
    both = row | {"threads": 1, "text": None, "windows": 1}
    case = {key: both[key] for key in RANKS_KEYS if key in both}
    return of_kind({"kind": "ranks"} | case, {key: value for key, value in row.items() if key not in case})


def test_divisions_have_distances_bytes_and_a_mark_if_the_formula_differs(markdown):
    near = AttentionDelta(max_logit=0.01, mean_kld=1e-9, same_top=0.999, num_tokens=64)
    found = {"verdict": WITHIN, "delta": near, "floor": AttentionDelta(mean_kld=2e-6), "link": "shm"}
    as_formula, other = Exchange(4096, 6, 4096, 6, 0.1), Exchange(4096, 6, 4000, 6, 0.1)
    rows = [
        divided(RankLayout(tp=2), **found, exchange=as_formula),
        divided(RankLayout(ep=2), **found, exchange=other),
        divided(RankLayout(pp=2, micro_batches=4), **found, exchange=as_formula),
        divided(RankLayout(tp=4), verdict=REFUSED, reason="--tp 4 would cut w, at 64; legal: --tp 2 or --pp 4"),
        divided(RankLayout(pp=2), verdict=REFUSED, reason="one layer"),
    ]
    figures = [WITHIN, "1.00e-02", "1.00e-09", "0.9990", "2.00e-06", "64"]
    assert sorted(row[3:] for row in rows_of(markdown(rows))) == [
        ["tp 1, pp 2", REFUSED, *["n/a"] * 7, "one layer"],
        ["tp 2, pp 1, cut sum; ep 2, pp 1; tp 1, pp 2, micro-batches 4", *figures, "4096; 4096 !; 4096", "shm", ""],
        ["tp 4, pp 1, cut sum", REFUSED, *["n/a"] * 7, "tp=2 or pp=4"],
    ]


def test_a_failed_case_has_no_row(markdown):
    failed = failed_record("q8_0", "killed") | {"case": serving()["case"], "key": "other"}
    assert len(rows_of(markdown([serving(), failed]))) == 2


def test_a_placement_has_both_sides_of_each_part(markdown):
    case = {"kind": "placement", "model": "m.gguf", "recipe": None, "kv_format": None, "memory_bytes": 640 << 20}
    case |= {"context": 64, "batch": 16, "goal": "latency", "threads": 2}
    step = {"step_s": 0.1, "compute_s": 0.06, "wait_s": 0.04, "disk_s": 0.09, "disk_bytes": 2e8}
    ran = {"measured": step | {"step_s": 0.125, "wait_s": 0.065}, "measured_tok_s": 128.0, "ratio": 1.25}
    row = of_kind(case, {"step": step, "predicted_tok_s": 160.0} | ran)
    alone = of_kind(case | {"batch": 1}, {"step": step, "predicted_tok_s": 10.0})
    both, plan = rows_of(markdown([row, alone]))
    assert both[:7] == ["m.gguf", "float32", "640", "16", "64", "latency", "200.0 / 200.0"]
    assert both[7:] == ["100.0 / 125.0", "60.0 / 60.0", "40.0 / 65.0", "90.0 / 90.0", "160.00 / 128.00", "1.250"]
    assert plan[7] == "100.0 / n/a" and plan[-1] == "n/a"


def test_a_peer_has_the_seconds_of_both_and_of_the_disk(markdown):
    case = {"kind": "peer", "model": "m.gguf", "peer": "llama.cpp", "memory_bytes": 880 << 20, "batch": 1, "threads": 2}
    found = {"qbench_s": [0.5, 0.4], "peer_s": [0.9, 0.9], "disk_s": [0.4, 0.4], "read_bytes": 1_500_000_000}
    row = of_kind(case, found | {"times_as_fast": 2.025, "most_times_as_fast": 2.25, "busy_before": 0.0})
    alone = of_kind(case | {"peer": "accelerate"}, found | {"disk_s": [], "times_as_fast": 2.025})
    both, one = rows_of(markdown([row, alone]))
    assert both == ["m.gguf", "llama.cpp", "880", "1", "1500.0", "0.450", "0.900", "0.400", "2.02", "2.25"]
    assert one[1] == "accelerate" and one[7:] == ["n/a", "2.02", "n/a"]


def test_each_question_has_a_table_and_each_size_a_row(markdown):
    case = {"kind": "breakeven", "model": "m", "recipe": None, "kv_format": None, "question": "prefill"}
    case |= {"alternative": "star", "layers": 2, "mass": 0.95, "rounds": 8, "threads": 1, "clock": "cpu"}
    points = [
        {"size": 512, "choice": "star:25%", "ratio": 0.9, "low": 0.8, "high": 1.1, "figures": None, "says": None},
        {"size": 4096, "choice": "star:25%", "ratio": 1.5, "low": 1.2, "high": 1.7, "figures": None, "says": None},
    ]
    pays = of_kind(case, {"axis": "tokens", "points": points, "pays_from": 4096, "below": 512, "conclusion": None})
    offload = case | {"question": "offload", "alternative": "offload"}
    limit = {"size": 600, "choice": None, "ratio": None, "low": None, "high": None, "figures": None, "says": "needed"}
    cost = "offload: off from 900 MiB on"
    needed = {"axis": "MiB", "points": [limit], "pays_from": None, "conclusion": cost, "needed_below": 900}
    text = markdown([pays, of_kind(offload, needed)])
    assert "`--what prefill` by tokens, m, as stored, the first 2 layers:" in text and "`--what offload` by MiB" in text
    first = ["star", "512", "star:25%", "0.900 [0.800, 1.100]", "off", ""]
    assert first in rows_of(text) and ["star", "4096", "star:25%", "1.500 [1.200, 1.700]", "on", "4096"] in rows_of(
        text
    )
    assert ["offload", "600", "n/a", "n/a", "needed", "n/a"] in rows_of(text)
    assert f"|\n\n{cost}.\n\nSpeed is" in text
