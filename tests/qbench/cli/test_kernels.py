import json

import pytest

import cpu_kernels
from qbench.kernels import linear_benchmarks, measure
from qbench.kernels.benchmark import OURS
from qbench.kernels.case import Deviation
from qbench.kernels.linear import packed_formats
from qbench.speed.units import CAN_DO


@pytest.fixture
def small(monkeypatch):
    """One shape, no waiting: for tests of the form of the output, not of its figures."""
    monkeypatch.setattr(linear_benchmarks, "SHAPES", ((64, 256),))
    monkeypatch.setattr(linear_benchmarks, "COLD_BYTES", 1)
    monkeypatch.setattr(measure, "ROUNDS", 1)
    monkeypatch.setattr(measure, "TURN_S", 0.0)


def test_rows_are_timed_and_kept(qbench, small, tmp_path, monkeypatch):
    name = packed_formats()[0]
    argv = ("kernels", "--only", f"linear_{name}", "--m", "1,4", "--threads", "1")
    monkeypatch.setattr("qbench.cli.kernels.busy_share", lambda: 0.5)
    outcome = qbench(*argv, "--json", "--keep", tmp_path / "kept.jsonl")
    assert "50 % of this machine busy" in outcome.err
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert outcome.status == 0 and [row["tokens"] for row in rows] == [1, 4]
    for row in rows:
        ours = row["contenders"][OURS]
        assert ours["ms"] > 0 and 0 < ours["share"] and row["bandwidth_bytes_per_s"] == [], "a cache keeps it"
        assert row["threads"] == 1 and row["machine"] and row["affinity"] and row["forced"] is None
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert [record["case"]["tokens"] for record in kept] == [1, 4]
    for record in kept:
        ours = record["metrics"]["contenders"][OURS]
        assert ours["samples_ms"] and record["metrics"]["impls"] == {ours["how"]: 1}
        assert (
            record["metrics"]["protocol"]
            == measure.timing_protocol("wall").to_json()
            != measure.timing_protocol("cpu").to_json()
        )
        isa, arithmetic = record["metrics"]["unit"].split()
        assert isa in cpu_kernels.features() and arithmetic in CAN_DO["int8"]
        assert record["metrics"]["arithmetic"] == "int8" and record["metrics"]["peak_ops_per_s"] > 0
    printed = qbench(*argv).out
    assert f"linear_{name}" in printed and f" of the roofline ({rows[0]['unit']}) [" in printed
    readme = tmp_path / "README.md"
    readme.write_text("<!-- qbench:kernels begin -->\n<!-- qbench:kernels end -->\n")
    assert qbench("report", tmp_path / "kept.jsonl", "--into", readme, "--marker", "kernels").status == 0
    assert f"| linear_{name} | 64x256 | 4 |" in readme.read_text()
    qbench("report", tmp_path / "kept.jsonl", "--format", "csv").fails_with("kept.jsonl: no records of a sweep")


def test_a_forced_row_is_shown_next_to_the_default_one(qbench, small, tmp_path, monkeypatch):
    name = packed_formats()[0]
    argv = ("kernels", "--only", f"linear_{name}", "--m", "1", "--threads", "1", "--keep", tmp_path / "kept.jsonl")
    qbench(*argv)
    monkeypatch.setenv("QBENCH_ISA", "scalar")
    qbench(*argv)
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert [record["case"].get("forced") for record in kept] == [None, "QBENCH_ISA=scalar"]
    assert kept[1]["metrics"]["unit"].startswith("scalar "), "a forced instruction set limits the units, too"
    text = qbench("report", tmp_path / "kept.jsonl").out
    assert text.count(f"| linear_{name}") == 2 and text.count("forced by QBENCH_ISA=scalar") == 1


def test_a_suite_lists_its_timed_rows(qbench, small, tmp_path):
    name = packed_formats()[0]
    (tmp_path / "s.yaml").write_text(
        f"name: s\ncases: [{{kernels: linear_{name}, tokens: [1, 4]}}]\nthreads: 1\nclock: cpu\n"
    )
    rows = [json.loads(line) for line in qbench("kernels", "--suite", tmp_path / "s.yaml", "--json").out.splitlines()]
    assert [(row["op"], row["tokens"], row["threads"], row["clock"]) for row in rows] == [
        (f"linear_{name}", 1, 1, "cpu"),
        (f"linear_{name}", 4, 1, "cpu"),
    ]
    qbench("kernels", "--suite", tmp_path / "s.yaml", "--m", "8").fails_with("--suite says what is timed", "--m")
    qbench("kernels", "--suite", "kernel").fails_with("no suite 'kernel'")


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["lines", "json"])
def test_a_wrong_kernel_ends_in_1_and_has_no_speed(qbench, small, monkeypatch, form):
    off = Deviation(0.5, 0.25)
    monkeypatch.setattr(linear_benchmarks.Weight, "check", lambda weight, num_tokens, y: off)
    name = packed_formats()[0]
    outcome = qbench("kernels", "--only", f"linear_{name}", "--m", "1", "--threads", "1", *form)
    assert outcome.status == 1 and " ms" not in outcome.out and '"ms"' not in outcome.out
    assert "error 0.5, expected at most 0.25" in outcome.out


def test_bad_input(qbench):
    qbench("kernels", "--only", "").fails_with("--only: got an empty name, expected part of the name of a kernel")
    qbench("kernels", "--only", "gemm", "--m", "1,4").fails_with("timed at 1, 4 tokens has 'gemm' in its name")
    qbench("kernels", "--only", "attention", "--m", "4").fails_with("attention is timed at 1 and from 64 on")
    qbench("kernels", "--cpu-time", "--threads", "2").fails_with("count it with --threads 1")
    qbench("kernels", "--m", "0").fails_with("0 is not in the range")
    for many in ("2000000000", "99999999999999999999"):
        qbench("kernels", "--m", many).fails_with(f"{many} is not in the range 1<=x<=1048576")


def test_the_gpu_is_asked_for_in_one_line(qbench, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    qbench("kernels", "--device", "cuda", "--json").fails_with("got no CUDA GPU, expected one")
    qbench("kernels", "--device", "cuda", "--only", "fft").fails_with("got --only 'fft', expected part of one of")
    qbench("kernels", "--device", "cuda", "--m", "8").fails_with("at its own sizes; leave out --m")


@pytest.fixture
def measured(monkeypatch):
    """A GPU whose measurement gives one row."""
    from gpu_kernels.measurement import Measurement

    row = {"op": "silu_mul", "label": "M=1 K=1", "impl": "triton", "us": 2.0, "tops": 0.5, "gb_s": 9.0}
    row |= {"share": 0.25, "bound": "bandwidth"}
    monkeypatch.setattr(Measurement, "rows", lambda self: iter([[row]]))
    return row


def test_rows_of_the_gpu(qbench, measured, tmp_path):
    outcome = qbench("kernels", "--device", "cuda", "--only", "silu", "--json", "--keep", tmp_path)
    assert outcome.status == 0 and json.loads(outcome.out) == measured
    assert json.loads((tmp_path / "fused.jsonl").read_text()) == {"schema": 2} | measured
    assert "25% of bandwidth" in qbench("kernels", "--device", "cuda").out


def test_a_wrong_kernel_of_the_gpu_ends_in_1(qbench, monkeypatch):
    from gpu_kernels.measurement import Measurement, WrongResults

    def rows(self):
        raise WrongResults("wrong, so nothing was timed:\n  silu_mul M=1 K=1")
        yield

    monkeypatch.setattr(Measurement, "rows", rows)
    outcome = qbench("kernels", "--device", "cuda")
    assert outcome.status == 1 and outcome.out == "" and "silu_mul M=1 K=1" in outcome.err
