"""A sweep whose models are divided among ranks: one record per division, written by rank 0 alone."""

from pathlib import Path

import pytest
from support.launched_ranks import run_ranks

from qbench.cli.main import main
from qbench.cli.rank_sweep import divided
from qbench.measure.records.record import Record, read_records
from qbench.run.options import RunOptions
from qbench.run.rank_layout import DIVISIONS, RankLayout
from qbench.sweeps.suite.load_suite import load_suite
from qbench.sweeps.sweep import Selection, selected_cases
from quant.errors import InputError

SPEED = "bench: {pp: 8, tg: 2, repetitions: 1, precision: 0.01, budget_s: 60}"
TP, PP, SP = "tp 2, pp 1, cut sum", "tp 1, pp 2", "sp 2, pp 1"


def suite(folder: Path, models: str = "[rand:tiny]", recipes: str = "[q8_0]", *lines: str) -> str:
    path = folder / "divided.yaml"
    path.write_text("\n".join(["name: divided", f"models: {models}", f"recipes: {recipes}", "threads: 1", *lines]))
    return str(path)


def sweep_on_two(status: int, *argv: str) -> str:
    """Output of rank 0; rank 1 prints nothing"""
    first, second = run_ranks(*[("sweep", *argv)] * 2)
    assert (first.status, second.status) == (status, 0), first.err
    assert second.out == second.err == ""
    return first.out


def rows(folder: Path) -> dict[tuple[str | None, str | None], Record]:
    """(recipe, division) -> its row"""
    found = list(read_records(folder / "records.jsonl"))
    keyed = {(row.model_case.recipe, row.model_case.division): row for row in found}
    assert len(keyed) == len(found)
    return keyed


def test_each_division_of_a_suite_is_a_row_and_a_cut_through_groups_an_error(tmp_path):
    lines = ("divisions: [tp, pp, sp]", SPEED, "exclude: [{recipe: q4_k_m, division: [pp, sp]}]")
    named = suite(tmp_path, "[rand:tiny]", "[q8_0, q4_k_m]", *lines)
    table = sweep_on_two(1, named, "-o", str(tmp_path / "run"))
    found = rows(tmp_path / "run")
    assert [*found] == [("q8_0", TP), ("q8_0", PP), ("q8_0", SP), ("q4_k_m", TP)]
    refused = found.pop(("q4_k_m", TP))
    assert "legal: tp=1, tp=2,cut=gather, or pp=2" in (refused.error or "")
    for (_, division), row in found.items():
        assert division is not None and division in table
        work, ranks, figures = row.model_case.speed, row.figures.ranks, row.figures.speed
        assert work is not None and (work.repetitions, work.precision, work.budget_s) == (1, None, None)
        assert figures is not None and figures.figures is not None and figures.figures.tg_tok_s is not None
        assert ranks is not None and ranks.exchanges is not None and len(ranks.peak_rss_bytes or ()) == 2
        for traffic in ranks.exchanges.values():
            assert traffic.bytes_per_token == traffic.expected_bytes_per_token > 0


@pytest.mark.exhaustive("four sweeps; the row above is the sample")
def test_quality_of_equal_divisions_is_that_of_one_rank_and_a_second_run_measures_nothing(tmp_path):
    named = suite(tmp_path, "[ref:llama]", "[q4_0]", "eval: {max_windows: 1}")
    assert main(["sweep", named, "-o", str(tmp_path / "one")]) == 0
    for options in (("--ranks", "tp=2,cut=gather"), ("--ranks", "pp=2"), ("--ranks", "pp=2")):
        sweep_on_two(0, named, *options, "-o", str(tmp_path / "two"))
    (one,), two = rows(tmp_path / "one").values(), rows(tmp_path / "two")
    assert [division for _, division in two] == ["tp 2, pp 1, cut gather", PP]
    quality = one.figures.quality
    assert quality is not None and quality.mean_kld
    for row in two.values():
        assert row.figures.quality is not None
        assert (row.figures.quality.perplexity, row.figures.quality.kld) == (quality.perplexity, quality.kld)


# Each rank has a file of its own under the same name.
IN_FOLDERS = """
import os, sys
from qbench.cli.main import main
os.chdir(os.path.join({folder!r}, "ab"[int(os.environ["RANK"])]))
sys.exit(main())
"""


@pytest.mark.exhaustive("two processes; test_agree.py has the rule")
def test_ranks_with_other_cases_end_in_one_line(tmp_path):
    for name, recipe in (("a", "[q8_0]"), ("b", "[q4_0]")):
        (tmp_path / name).mkdir()
        suite(tmp_path / name, "[rand:tiny]", recipe, SPEED)
    ends = run_ranks(*[("sweep", "divided.yaml", "--ranks", "tp=2")] * 2, code=IN_FOLDERS.format(folder=str(tmp_path)))
    assert [end.status for end in ends] == [2, 2]
    (line,) = ends[0].err.splitlines()
    assert "has another list of cases than rank 0" in line and ends[0].out == ""
    assert not (tmp_path / "a" / "runs").exists()


@pytest.fixture
def as_one_of_two(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)


def line_of(argv: list[str], capsys) -> str:
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("lines", "argv", "message"),
    [
        ((SPEED,), ("--ranks", "tp=2"), "needs 2 ranks, got one process; start them with torchrun --nproc-per-node 2"),
        (("divisions: [sp]", SPEED), (), "sp 2, pp 1 needs 2 ranks, got one process"),
        (
            ("divisions: [sp]", SPEED),
            ("--ranks", "tp=2"),
            "suite divided names divisions itself; leave out --ranks tp=2",
        ),
        (("divisions: [px]", SPEED), (), "division 'px' is unknown; known: tp, gather, pp, ep, sp"),
        ((SPEED,), ("--ranks", "tp=2", "--dry-run"), "--dry-run forecasts cases of one rank"),
        ((SPEED,), ("--ranks", "restarts=1,ray=auto"), "restarts, link and timeout are for ranks"),
        ((SPEED,), ("--ranks", "tp=2,ep=2"), "tp 2 does not combine with ep 2 yet"),
    ],
)
def test_divisions_that_cannot_be_had(lines, argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in line_of(["sweep", suite(tmp_path, "[rand:tiny]", "[q8_0]", *lines), *argv], capsys)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "no --ranks divides the model"),
        (("--ranks", "tp=3"), "torchrun started 2 ranks, expected tp x pp = 3 x 1 = 3"),
    ],
)
@pytest.mark.usefixtures("as_one_of_two")
def test_ranks_that_the_options_do_not_divide(argv, message, tmp_path, capsys):
    assert message in line_of(["sweep", suite(tmp_path, "[rand:tiny]", "[q8_0]", SPEED), *argv], capsys)


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        ("memory: 1GiB", "tp=2", "memory 1GiB does not combine with tp 2, pp 1, cut sum yet"),
        ("isa: scalar", "pp=2", "isa scalar does not combine with tp 1, pp 2 yet"),
        ('policies: "window:64"', "pp=2", "--policy window:64 does not combine with tp 1, pp 2 yet"),
        ("description: no experts", "ep=2", "suite divided: ep=2 divides experts, and rand:tiny has none; use"),
        ("launches: 2", "tp=2", "2 launches measure on one rank; leave them out, or the divisions"),
    ],
)
@pytest.mark.usefixtures("as_one_of_two")
def test_cases_that_ranks_cannot_measure_are_refused_before_any_runs(line, options, message, tmp_path):
    loaded = load_suite(suite(tmp_path, "[rand:tiny]", "[q8_0]", SPEED, line))
    with pytest.raises(InputError, match=message):
        selected_cases(divided(loaded, RunOptions(division=options)), Selection())


@pytest.mark.parametrize("name", [*DIVISIONS, TP, PP, SP, "tp 2, pp 2, cut gather", "ep 2, pp 1, all-to-all"])
def test_a_layout_is_read_from_its_text(name):
    layout = RankLayout.of(name, 4)
    assert layout.num_ranks > 1 and RankLayout.of(str(layout)) == layout


@pytest.mark.parametrize("text", ["", "px", "tp 2", "tp x, pp 1, cut sum", "lanes 2, pp 1", "tp 2, pp 1, cut no"])
def test_a_text_that_is_no_division_is_refused(text):
    with pytest.raises(InputError, match="is unknown; known: tp, gather, pp, ep, sp"):
        RankLayout.of(text)
