"""The display of a running sweep, on a terminal and on a pipe."""

import io

import pytest
from rich.console import Console
from support.documents import case_key

from qbench.cli.output import readable_duration
from qbench.cli.sweep_view import Lines, LiveTable, sweep_view
from qbench.measure.records.record import Record
from qbench.run.case import Case
from qbench.sweeps.forecast.past import Past
from qbench.sweeps.forecast.time_left import TimeLeft
from qbench.sweeps.sweep import SweepEvent

CASES = tuple(
    Case.from_json(
        {
            "model": "ref:llama",
            "fingerprint": "f",
            "recipe": recipe,
            "kv_format": "f32",
            "batch": 1,
            "eval": {},
            "bench": None,
        }
    )
    for recipe in ("bf16", "q8_0", "q4_0")
)
METRICS = {"perplexity": 3.4567, "kld": {"mean": 0.00815}, "pp_tok_s": None}


def event(kind: str, index: int, **details) -> SweepEvent:
    point = Case(model="ref:llama", recipe=CASES[index].recipe, kv_format="f32", threads=2, isa="auto")
    return SweepEvent(kind, index, 4, point, **details)


def record(index: int, error: str | None = None, **metrics) -> Record:
    case = CASES[index].to_json()
    about = {"schema_version": 2, "key": case_key(case), "time": "2026-01-01T00:00:00", "machine": {"id": "here"}}
    measured = None if error else METRICS | metrics
    about |= {"status": "error" if error else "ok", "error": error, "case": case, "metrics": measured}
    return Record.from_json(about)


BEGIN = event("begin", 0, cases=CASES, varying=("recipe", "threads"))
RUN = (
    BEGIN,
    event("skipped", 0),
    event("start", 0),
    event("done", 0, record=record(0, wall_seconds=4.0)),
    event("start", 1),
    event("failed", 1, record=record(1, "no room")),
    event("start", 2),
    event("progress", 2, stage="measure", progress=(8, 24, "windows")),
)


def test_on_a_pipe_each_case_is_a_line(capsys):
    with sweep_view("small", None) as view:
        assert isinstance(view, Lines)
        for one in RUN:
            view(one)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "1 of 4 already measured",
        "1/4 ref:llama bf16 threads=2: perplexity 3.457, mean KLD 8.15e-03",
        "2/4 ref:llama q8_0 threads=2: failed: no room",
    ]


def test_a_warning_of_a_file_is_shown_once(capsys):
    warned = [event("done", index, record=record(index), warnings=("quantized already",)) for index in (0, 0)]
    view = Lines()
    for one in (BEGIN, *warned):
        view(one)
    assert capsys.readouterr().err.splitlines().count("warning: ref:llama bf16: quantized already") == 1


def test_on_a_terminal_a_table_lives():
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    table = LiveTable("small", lambda cases: TimeLeft(cases, Past({"here"})), console)
    for one in RUN:
        table(one)
    console.print(table.render())
    text = console.file.getvalue()
    head = next(line for line in text.splitlines() if line.startswith("small"))
    assert "3/4 cases" in head and "1 failed" in head and "left" in head
    assert "ref:llama q8_0 threads=2: failed: no room" in text
    running = next(line for line in text.splitlines() if line.startswith("ref:llama q4_0"))
    assert "measure, windows 8/24" in running
    (result,) = (line.split() for line in text.splitlines() if line.startswith("ref:llama bf16"))
    assert result[3:5] == ["3.457", "8.15e-03"] and "pp tok/s" not in text


def test_time_left_is_read_from_like_cases_and_from_this_run():
    assert TimeLeft(CASES, Past({"here"})).seconds(0.0) is None
    past = Past({"here"}).read([record(0, wall_seconds=10.0, quantize_seconds=2.0)])
    left = TimeLeft(CASES, past)
    assert left.seconds(0.0) == 3 * 10 + 2.0 and left.seconds(5.0) == 27.0
    left.end(record(0, wall_seconds=30.0), 31.0)  # the median of 10 and 30 from now on
    assert left.seconds(0.0) == 10 * 2 + 20.0 and left.seconds(100.0) == 0.0


@pytest.mark.parametrize(
    "seconds, text", [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (3700, "1 h 1 min")]
)
def test_durations_are_readable(seconds, text):
    assert readable_duration(seconds) == text
