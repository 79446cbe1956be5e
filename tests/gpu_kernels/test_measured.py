import json
import shutil
from pathlib import Path

from gpu_kernels import measured
from gpu_kernels.proof.problems import all_ops, problems_of

RESULTS = Path(__file__).parents[2] / measured.RECORDS


def test_the_file_matches_its_measurements():
    """`python -m gpu_kernels.measured` writes it."""
    text = measured.FILE.read_text()
    assert text == measured.written(text, measured.table(RESULTS))
    assert [op for op in all_ops() if f"| `{op}` |" not in text] == []


def test_the_page_of_results_matches_the_measurements():
    """`python -m gpu_kernels.measured` writes it."""
    text = (RESULTS / "README.md").read_text()
    assert text == measured.written(text, measured.results_table(RESULTS))


def test_a_problem_is_a_row_of_its_last_run(tmp_path):
    row = {"op": "compact", "label": "B=1", "time": "later", "commit": "b" * 40, "share": 0.5, "bound": "bandwidth"}
    rows = [
        row | {"impl": "triton", "us": 1.0, "tops": 1.0, "time": "before", "commit": "a" * 40},
        row | {"impl": "triton", "us": 20.0, "tops": 1.0},
        row | {"impl": "triton 16x64", "us": 10.0, "tops": 1.0},
        row | {"impl": "torch gather", "us": 30.0, "ours_times_as_fast": 1.5},
        row | {"impl": "other", "absent": "it raised"},
    ]
    (tmp_path / "fused.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    last = measured.results_table(tmp_path).splitlines()[-1]
    shown = "| `compact` | B=1 | 20.0 | 50% of bandwidth | `16x64` 10.0 us | torch gather 3.00 | bbbbbbbbbb |"
    assert last == shown and len(measured.results_table(tmp_path).splitlines()) == 3


def test_the_last_record_of_the_first_problem_counts(tmp_path):
    first, second = problems_of("silu_mul")[:2]
    row = {
        "op": "silu_mul",
        "label": first.label,
        "impl": "triton",
        "us": 12.34,
        "share": 0.876,
        "bound": "bandwidth",
    }
    row |= {"gpu": "Some GPU", "commit": "0123456789abcdef"}
    rows = [row | {"us": 99.0}, row, row | {"impl": "torch chain"}, row | {"label": second.label}]
    (tmp_path / "fused.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    line = next(line for line in measured.table(tmp_path).splitlines() if "`silu_mul`" in line)
    assert line.endswith(f"| Some GPU, 0123456789: {first.label} in 12.3 us, 88% of bandwidth |")
    shutil.rmtree(tmp_path)
    assert measured.table(tmp_path).count(f"| {measured.NOT_RUN} |") == len(all_ops())
