"""Tables of kernels and of comparisons, from records of every kind in one file."""

import numpy as np
import pytest
from scipy import stats
from support.sample_records import make_record, write_records

from qbench.measure.records.kept_kinds import Contender
from qbench.report import load_records, render_report
from qbench.report.speeds import peer_cell

SPREAD = {"median": 2.0, "min": 1.5, "max": 2.5, "mad": 0.1}


RAN = {
    "pp": {"cpu-q4_k[avx512_vnni int8x256]": 3, "cpu-q6_k[avx512_vnni tile]": 1},
    "tg": {"cpu-q4_k[avx512_vnni direct]": 4},
}


def of_kind(case: dict, metrics: dict) -> dict:
    record = make_record("q8_0")
    key = "-".join(str(value) for value in case.values())
    return record | {"key": key, "case": case, "metrics": metrics}


def kernel(tokens: int, **contenders) -> dict:
    case = {"kind": "kernel", "op": "linear_q4_0", "shape": "64x32", "tokens": tokens, "threads": 2}
    return of_kind(
        case, {"contenders": contenders, "bound_by": "bytes", "bandwidth_bytes_per_s": [30e9, 36e9], "moved_bytes": 1}
    )


def versus(depth: int, pp: int = 512) -> dict:
    case = {
        "kind": "versus",
        "model": "some/m.gguf",
        "pp": pp,
        "tg": 64,
        "depth": depth,
        "threads": 2,
        "kv_format": None,
    }
    side = {"spread": {"pp_tok_s": SPREAD, "tg_tok_s": SPREAD}}
    shares = {"pp": 0.5, "tg": 0.875}
    return of_kind(
        case,
        {
            "kv_bits": 16.0,
            "llama.cpp": {"version": "0.3.36", "system": "AVX2 = 1", "kv_format": "f16"},
            "ours": side,
            "theirs": side,
            "ratio": {phase: SPREAD | {"interval": [1.8, 2.2]} for phase in ("pp", "tg")},
            "ran": RAN,
            "roofline": {"ours": shares, "theirs": shares, "bandwidth_bytes_per_s": [31e9, 32e9]},
        },
    )


def figures(ms: float, **more) -> dict:
    return {
        "ms": ms,
        "gb_s": 1.25,
        "tera_ops": 0.5,
        "share": 0.25,
        "how": "avx2 tile",
        "samples_ms": [[1.0], [1.0]],
        **more,
    }


@pytest.fixture
def markdown(tmp_path):
    return lambda rows: render_report(write_records(tmp_path / "records.jsonl", rows), "md")


def test_kernels_are_listed_next_to_their_peers(markdown):
    peer = {"ms": 3.0, "ratio": SPREAD}
    text = markdown([kernel(1, qbench=figures(1.0), torch=peer), kernel(4, qbench=figures(2.0), ggml={"absent": "no"})])
    lines = text.splitlines()
    assert lines[0].startswith("**Kernels on ") and "30 to 36 GB/s" in text and "2 threads" in text
    assert lines[2] == "Linears" and "ggml" not in lines[4], "who has no figure has no column"
    assert [cell.strip() for cell in lines[6].split("|")[1:-1]] == (
        "linear_q4_0;64x32;1;1.000;1.2 GB/s;25 %;avx2 tile;3.000 ms, undecided: 3.00x (no interval)".split(";")
    )
    assert lines[7].count("n/a") == 1


def test_a_share_by_another_definition_is_marked(markdown):
    """The record has three rounds and two bandwidths, one read before the case and one after it."""
    text = markdown([kernel(1, qbench=figures(1.0, samples_ms=[[1.0]] * 3))])
    assert "| 25 % * |" in squeezed(text) and "* of older records: at the larger of two bandwidths" in text


def test_the_note_names_the_units_that_bound_the_operations(markdown):
    """Rows that bytes bound have no part in it."""
    older, newer = kernel(512, qbench=figures(1.0)), kernel(64, qbench=figures(1.0))
    for row in (older, newer):
        row["metrics"]["bound_by"] = "operations"
    assert "strongest unit" not in markdown([older, kernel(1, qbench=figures(1.0))])
    newer["metrics"]["unit"] = "amx bf16"
    note = "operations at the strongest unit that could do them: amx bf16"
    assert f"{note}; machine" in markdown([newer, kernel(1, qbench=figures(1.0))])
    assert f"{note}, in 1 older row at the arithmetic that ran; " in markdown([newer, older])


def test_a_figure_that_does_not_apply_is_left_out(markdown):
    search = kernel(None, qbench=figures(1.0) | {"share": None})
    search["case"]["op"], search["metrics"]["bound_by"] = "encode_q4_0", None
    product = kernel(4, qbench=figures(2.0, share=1.25))
    product["metrics"]["bound_by"] = "operations"
    lines = markdown([search, product]).splitlines()
    assert "| encode_q4_0 | 64x32 | 1.000 | avx2 tile |" in lines
    assert "| linear_q4_0 | 64x32 | 4 | 2.000 | 0.500 TOPS | over 100 % | avx2 tile |" in map(squeezed, lines)


def squeezed(line: str) -> str:
    return " ".join(line.split())


def test_only_rows_of_the_newest_code_are_shown(markdown):
    old, new = kernel(1, qbench=figures(1.0)), kernel(4, qbench=figures(2.0))
    old |= {"code": "a" * 16, "time": "2026-01-01T00:00:00.000+00:00"}
    new |= {"code": "b" * 16, "time": "2026-01-02T00:00:00.000+00:00"}
    text = markdown([new, old])
    assert "| 4 |" in squeezed(text) and "| 1 |" not in squeezed(text)


@pytest.mark.parametrize("kind", ["kernel", "versus"])
def test_rows_of_a_forced_instruction_set_have_their_own_table(markdown, kind):
    """Measured later, by other code: they hid the rows that nothing forced."""
    usual, forced = ({"kernel": kernel(1, qbench=figures(1.0)), "versus": versus(0)}[kind] for _ in range(2))
    usual |= {"code": "a" * 16, "time": "2026-01-01T00:00:00.000+00:00"}
    forced |= {"code": "b" * 16, "time": "2026-01-02T00:00:00.000+00:00", "key": "other"}
    forced["case"] = forced["case"] | {"forced": "QBENCH_ISA=avx2"}
    titles = [line for line in markdown([forced, usual]).splitlines() if line.startswith("**")]
    assert len(titles) == 2 and titles[1] == titles[0].removesuffix("**") + ", QBENCH_ISA=avx2**"


def test_wrong_kernels_have_no_figures(markdown):
    text = markdown([kernel(1, qbench={"wrong": "error 1"}, torch={"ms": 3.0})])
    assert "| linear_q4_0 | 64x32 | 1 | 3.000 ms |" in map(squeezed, text.splitlines())


@pytest.mark.parametrize(
    ("theirs", "begins"),
    [
        ([2.0, 2.2, 2.1], "2.100 ms, 2.10x ["),
        ([0.9, 1.2, 1.1], "2.100 ms, undecided: 1.06x ["),
        ([1.0, 9.0, 3.0], "2.100 ms, not measured well enough ["),
        ([2.0], "2.100 ms, undecided: 2.10x (no interval)"),
    ],
    ids=["decided", "undecided", "too wide", "other rounds"],
)
def test_a_peer_has_a_ratio_only_if_the_rounds_decide(theirs, begins):
    ours = Contender(ms=1.0, samples_ms=[[1.0], [1.0], [1.0]])
    text = peer_cell(ours, Contender(ms=2.1, samples_ms=[[value] for value in theirs]))
    assert text.startswith(begins)
    if len(theirs) == 3:
        low, high = np.exp(stats.ttest_1samp(np.log(theirs), 0).confidence_interval())
        assert text.endswith(f"[{low:.2f}, {high:.2f}]")


def test_models_are_listed_next_to_llama_cpp(markdown):
    text = markdown([versus(0), versus(4096, pp=0)])
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| m.gguf")
    ]
    assert [row[1] for row in rows] == ["pp512", "tg64", "tg64@4096"]
    figures = [*["2.0 [1.5, 2.5]"] * 2, "2.00 [1.80, 2.20]", "50 % and 50 %", "31.5"]
    assert rows[0][2:] == ["16 bits, f16", *figures, "q4_k int8x256, q6_k tile"]
    assert rows[1][-1] == "q4_k direct"


def test_a_machine_with_amx_has_tables_of_its_own_that_name_the_builds(markdown):
    other = versus(4096)
    with_amx = versus(0)
    with_amx["machine"] = with_amx["machine"] | {"id": "0123456789ab", "cpu": "Xeon"}
    with_amx["metrics"] |= {"isa": "amx"}
    with_amx["metrics"]["llama.cpp"] |= {"system": "CPU : AVX2 = 1 | AVX512_VNNI = 1 | AMX_INT8 = 1 | OPENMP = 1"}
    text = markdown([other, with_amx])
    first, second = text.split("**The same files through llama.cpp on ")[1:]
    assert first.startswith("Xeon, AMX**") and "0.3.36, built with AVX512_VNNI, AMX_INT8." in first
    assert "AMX" not in second and "llama.cpp: llama-cpp-python 0.3.36, built with AVX2." in second


@pytest.mark.parametrize(
    "interval, text",
    [
        ([1.8, 2.2], "2.00 [1.80, 2.20]"),
        ([0.9, 2.2], "undecided: 2.00 [0.90, 2.20]"),
        ([0.21, 18.25], "not measured well enough [0.21, 18.25]"),
        ([1.01, 3.1], "not measured well enough [1.01, 3.10]"),
        (None, "undecided: 2.00 (no interval)"),
    ],
)
def test_a_ratio_that_is_not_known_is_no_headline(markdown, interval, text):
    row = versus(0)
    row["metrics"]["ratio"] = {phase: SPREAD | {"interval": interval} for phase in ("pp", "tg")}
    assert f"| {text} |" in squeezed(markdown([row]))


def test_kinds_do_not_mix(tmp_path):
    path = write_records(tmp_path / "records.jsonl", [make_record("bf16"), kernel(1, qbench=figures(1.0)), versus(0)])
    assert load_records(path)["recipe"].tolist() == ["bf16"]
    text = render_report(path, "md")
    assert text.index("| bf16") < text.index("Kernels on") < text.index("through llama.cpp")
    assert "kernel" not in render_report(path, "csv")
