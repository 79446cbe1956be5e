"""A judge takes speeds from all launches that the records hold."""

import pytest
from support.measured_twice import RECIPES, measured, second
from support.sample_records import write_records

from qbench.measure.host.commit import code_version
from qbench.measure.host.machine import machine
from qbench.recommendation.goal import Goal
from qbench.recommendation.measure import Judge
from qbench.run.work import QualityWork


def test_speeds_of_known_rows_are_the_mean_of_their_launches(tmp_path):
    here = {"code": code_version().code}
    firsts = [measured(recipe) | here for recipe in RECIPES[:2]]
    for row in firsts:
        row["machine"] = row["machine"] | {"id": machine().id}
    again = second(firsts[0], 4.0) | here
    again["machine"] = firsts[0]["machine"]
    (tmp_path / "known").mkdir()
    write_records(tmp_path / "known" / "records.jsonl", [*firsts, again])
    judge = Judge("ref:llama", Goal(10**9, context=128), QualityWork(), tmp_path / "run", [tmp_path / "known"])
    found = {case.recipe: metrics.figure("tg_tok_s") for case, metrics in judge.rows}
    judge.close()
    assert found == {RECIPES[0]: pytest.approx(800.0), RECIPES[1]: pytest.approx(400.0)}
