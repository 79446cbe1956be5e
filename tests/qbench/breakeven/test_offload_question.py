"""The question about offload: limits below the peak are `needed`, and options that offload cannot take are refused."""

import json
import re

import pytest
from click.testing import CliRunner

from qbench.breakeven import Answer, Point, Settings, get_question
from qbench.breakeven.offload import NEEDED, OffloadQuestion, conclusion, limits_of
from qbench.cli.breakeven import command
from qbench.measure.records.kept_placements import BreakevenMetrics, BreakevenPoint
from qbench.report.kind_cells import pays_text
from qbench.run.options import RunOptions
from quant.errors import InputError


def test_usual_limits_are_below_the_peak():
    assert limits_of(Settings(RunOptions()), 1000) == [900, 750, 600, 450]
    assert limits_of(Settings(RunOptions(), sizes=(5, 70)), 1000) == [70, 5]


def test_the_conclusion_has_the_share_of_each_limit_that_needs_offload():
    points = [Point(400, "", 0.25), Point(900, "", 1.0)]
    expected = "offload: off from 800 MiB on, the peak without it; needed below, with 25% of the speed at 400 MiB"
    assert conclusion(800, points) == expected


def test_tables_name_no_size_from_which_it_pays():
    def cell(says: str | None, pays_from: int | None = None) -> str:
        point = BreakevenPoint(size=900, ratio=0.5, says=says)
        return pays_text(BreakevenMetrics(axis="MiB", points=(point,), pays_from=pays_from), point)

    assert [cell(NEEDED), cell(None), cell(None, 900)] == ["n/a", "off", "900"]


@pytest.mark.parametrize("what", [(), ("--what", "offload")])
def test_a_memory_limit_is_a_size_of_the_question(monkeypatch, what):
    asked = []

    def answers(question, spec, settings, progress):
        asked.append(settings.sizes)
        yield Answer("offload", (Point(640, "--memory 640MiB", 0.3, says=NEEDED),), conclusion="end", needed_below=900)

    monkeypatch.setattr(OffloadQuestion, "answers", answers)
    result = CliRunner().invoke(command, ["ref:llama", "--memory", "640MiB", *what, "--json"], catch_exceptions=False)
    row = json.loads(result.stdout)
    assert asked == [(640,)] and row["question"] == "offload" and row["needed_below"] == 900


def test_a_memory_limit_of_another_question():
    result = CliRunner().invoke(command, ["ref:llama", "--memory", "1GiB", "--what", "kv"])
    assert result.exit_code == 2 and "--memory is a limit of --what offload" in result.stderr


@pytest.mark.parametrize(
    "given, named",
    [
        ({"options": RunOptions(recipe="q4_0")}, "as it is stored"),
        ({"clock": "cpu"}, "waiting for a disk"),
        ({"num_layers": 2}, "needs all layers"),
        ({"alternatives": ("ram",)}, "leave out --only"),
    ],
)
def test_settings_that_offload_cannot_take(given, named):
    settings = Settings(**({"options": RunOptions()} | given))
    with pytest.raises(InputError, match=named):
        next(get_question("offload").answers("ref:llama", settings))


@pytest.mark.exhaustive  # processes
def test_limits_on_both_sides_of_the_peak(tmp_path, monkeypatch):
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    settings = Settings(RunOptions(threads=1), sizes=(4000,), rounds=2)
    (answer,) = get_question("offload").answers("ref:llama", settings)
    (point,) = answer.points
    assert point.verdict == "off" and point.ratio is not None and point.ratio > 0
    with pytest.raises(InputError, match="the smallest that works") as error:
        list(get_question("offload").answers("ref:llama", Settings(RunOptions(threads=1), sizes=(60,), rounds=2)))
    assert int(re.findall(r"works here is (\d+)MiB", str(error.value))[0]) > 60
