"""The gate's look at several ranks: rows of `compare`, as findings."""

import json

import pytest

from qbench.comparison.several_ranks import ABOVE, EQUAL, REFUSED, RankDistance
from qbench.gate import run
from qbench.gate.comment import markdown, plain
from qbench.gate.result import GateAbout, GateResult
from qbench.gate.run import apart_on_ranks, error_of, red_rows
from qbench.measure.quality_figures import AttentionDelta
from qbench.measure.records.kept_ranks import RanksMetrics
from qbench.run.rank_layout import RankLayout

SUITE = "name: small\nmodels: [rand:tiny]\nrecipes: [bf16, q8_0]\nthreads: 1\nbench: {pp: 8, tg: 4}\n"


def printed(layout: RankLayout, found: RanksMetrics) -> str:
    return json.dumps(RankDistance("m", "q8_0", None, "dense", layout, "fast", found).to_json())


def test_only_red_rows_are_findings():
    far = AttentionDelta(max_logit=0.2, mean_kld=5e-6), AttentionDelta(max_logit=0.1, mean_kld=3e-6)
    lines = [
        printed(RankLayout(pp=2), RanksMetrics(EQUAL, AttentionDelta(max_logit=0.0), far[1])),
        printed(RankLayout(tp=2), RanksMetrics(ABOVE, *far)),
        printed(RankLayout(ep=2), RanksMetrics(REFUSED, reason="no experts")),
    ]
    name = "m q8_0 on ranks (tp 2, pp 1, cut sum)"
    assert dict(red_rows("\n".join(lines))) == {name: "above the floor: mean KLD 5.00e-06, floor 3.00e-06"}


def test_the_line_of_rank_0_is_found_in_the_output_of_torchrun():
    assert error_of("W1127 torch\nqbench: no model 'x'\n=====\nRoot Cause") == "no model 'x'"
    assert error_of("") == "it printed nothing"


def test_a_finding_is_red_and_named():
    about = GateAbout("s", "b", (None, None), (None, None), "m", 1.0)
    result = GateResult([], about, apart={"m q8_0 on ranks (tp 2)": "above the floor"})
    assert result.is_red and result.report().to_json()["apart"]
    for text in (markdown(result), plain(result)):
        assert "m q8_0 on ranks (tp 2)" in text and "is not the model of one rank" in text
        assert "1 case on several ranks: not the model of one rank." in text
    assert "apart" not in GateResult([], about).report().to_json()


@pytest.mark.exhaustive("starts torchrun")
def test_a_suite_on_two_ranks(tmp_path, monkeypatch):
    suite, said = tmp_path / "small.yaml", []
    suite.write_text(SUITE)
    assert apart_on_ranks(suite, 2, said.append) == {} and said == ["comparing rand:tiny on 2 ranks with one rank"]
    monkeypatch.setattr(run, "DIVISIONS", "tp,px")
    (error,) = apart_on_ranks(suite, 2, said.append).values()
    assert error == "division 'px' is unknown; known: tp, gather, pp, ep, sp"
