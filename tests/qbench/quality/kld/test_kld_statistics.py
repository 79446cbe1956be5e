"""The figures of a comparison, against loops over its tokens."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats
from support.close import assert_close
from support.perplexity import plan_of

from qbench.measure.quality_figures import Quality
from qbench.quality.kld.kld import Divergence, with_divergence
from qbench.quality.kld.llama_statistics import llama_statistics

SCORING = plan_of(np.zeros((10, 41), dtype=np.int64))  # 10 windows of 40 scored tokens
ROUNDING = 2.0**-52 * 400 * 16  # of sums of 400 terms in float64, and of differences of them


def compared(num: int = 400) -> Divergence:
    rng = np.random.default_rng(5)
    base = rng.gamma(2.0, size=num)
    nll = np.maximum(0, base + 0.1 * rng.standard_normal(num))
    columns = {
        "nll": nll,
        "kld": rng.gamma(0.5, 0.1, size=num),
        "same_top": (rng.random(num) < 0.9).astype(float),
        "delta_p": np.exp(-nll) - np.exp(-base),
        "base_nll": base,
        "confidence": rng.random(num),
        "error": np.zeros(num),
        "variance": np.zeros(num),
    }
    return Divergence(**columns)


def test_quantiles_match_their_names():
    values = np.random.default_rng(0).permutation(np.linspace(0, 1, 400))
    one = Divergence(*(values for _ in range(8)))
    told = with_divergence(Quality(), one, SCORING).to_json()
    for name, share in {
        "min": 0,
        "p001": 0.001,
        "p05": 0.05,
        "median": 0.5,
        "p99": 0.99,
        "p999": 0.999,
        "max": 1,
    }.items():
        assert_close(told["kld"][name], share, atol=2.0**-50)
    assert list(told["kld"])[:6] == ["mean", "median", "p90", "p99", "p999", "max"]
    assert_close(told["delta_p"]["p25"], 0.25, atol=2.0**-50)
    low, high = told["kld_interval"]
    assert low < told["kld"]["mean"] < high


def interval_of(windows: list[float]) -> list[float] | None:
    """The interval that windows of 40 scored tokens with these mean divergences have."""
    scoring = plan_of(np.zeros((len(windows), 41), dtype=np.int64))
    one = Divergence(*(np.repeat(windows, 40) for _ in range(8)))
    return with_divergence(Quality(), one, scoring).to_json()["kld_interval"]


def test_an_interval_needs_eight_windows():
    uneven = [0.01, 0.011, 0.012, 0.013]
    assert interval_of([*uneven, *uneven[:3]]) is None
    low, high = interval_of(2 * uneven)
    half = stats.t.ppf(0.975, 7) * np.std(2 * uneven, ddof=1) / np.sqrt(8)  # the bootstrap's end may be farther
    assert 0 < low <= 0.0115 - half * (1 - 2.0**-40) and high >= 0.0115 + half * (1 - 2.0**-40)


def test_windows_that_are_too_uneven_have_no_interval():
    """One window of eight has nearly all of the divergence: Student's interval of the mean reaches below 0."""
    assert 0.1 / 8 < stats.t.ppf(0.975, 7) * 0.1 / 8
    assert interval_of([0.1] + 7 * [1e-6]) is None


def test_a_model_without_a_divergence_has_an_interval_of_zero():
    assert interval_of(8 * [0.0]) == [0.0, 0.0] and interval_of(7 * [0.0]) is None


def test_bins_hold_every_token_once():
    one = compared()
    told = with_divergence(Quality(), one, SCORING).to_json()
    for part in told["kld_by_position"]:
        inside = [one.kld[i] for i in range(400) if part["low"] <= i % 40 + 1 < part["high"]]
        assert part["count"] == len(inside)
        assert_close(part["mean"], statistics.fmean(inside), rtol=ROUNDING)
    for part in told["kld_by_confidence"]:
        inside = [k for k, p in zip(one.kld, one.confidence, strict=True) if part["low"] <= p < part["high"]]
        assert part["count"] == len(inside)
        assert_close(part["mean"], statistics.fmean(inside), rtol=ROUNDING)
    for name in ("kld_by_position", "kld_by_confidence"):
        assert sum(part["count"] for part in told[name]) == 400
    assert [(part["low"], part["high"]) for part in told["kld_by_position"]][-1] == (32, 64)


def test_a_certain_reference_is_in_the_last_bin():
    one = Divergence(*(np.ones(400) for _ in range(8)))
    assert [part["count"] for part in with_divergence(Quality(), one, SCORING).to_json()["kld_by_confidence"]] == [400]


def test_one_logit_that_is_not_finite_leaves_no_statistic():
    one = compared()
    one.kld[3] = math.nan
    told = with_divergence(Quality(), one, SCORING).to_json()
    assert told["non_finite_kld"] == 1 and told["kld"] is None and told["delta_p"] is None
    assert llama_statistics(one.nll, one) is None


def deviation(values) -> float:
    """Standard error of a mean of independent values."""
    return statistics.stdev(values) / math.sqrt(len(values))


def test_the_table_of_llama_perplexity_by_its_formulas():
    one = compared()
    nll, base, delta = one.nll.tolist(), one.base_nll.tolist(), one.delta_p.tolist()
    table = llama_statistics(one.nll, one)
    difference = [a - b for a, b in zip(nll, base, strict=True)]
    ratio = math.exp(statistics.fmean(difference))
    ppl, base_ppl = math.exp(statistics.fmean(nll)), math.exp(statistics.fmean(base))
    # d(PPL(Q) - PPL(base)) = PPL(Q) d ln PPL(Q) - PPL(base) d ln PPL(base)
    weighed = [ppl * a - base_ppl * b for a, b in zip(nll, base, strict=True)]
    rms = math.sqrt(statistics.fmean(d * d for d in delta))
    same = one.same_top.mean()
    expected = {
        "Mean PPL(Q)": (ppl, ppl * deviation(nll)),
        "Mean PPL(base)": (base_ppl, base_ppl * deviation(base)),
        "Cor(ln(PPL(Q)), ln(PPL(base)))": (statistics.correlation(nll, base), None),
        "Mean ln(PPL(Q)/PPL(base))": (math.log(ratio), deviation(difference)),
        "Mean PPL(Q)/PPL(base)": (ratio, ratio * deviation(difference)),
        "Mean PPL(Q)-PPL(base)": (ppl - base_ppl, deviation(weighed)),
        "Mean KLD": (one.kld.mean(), deviation(one.kld.tolist())),
        "Median KLD": (statistics.median(one.kld), None),
        "Maximum KLD": (one.kld.max(), None),
        "Minimum KLD": (one.kld.min(), None),
        "Mean \u0394p": (statistics.fmean(delta), deviation(delta)),
        "RMS \u0394p": (rms, deviation([d * d for d in delta]) / (2 * rms)),
        "Same top p": (same, math.sqrt(same * (1 - same) / 399)),
    }
    for name, (value, error) in expected.items():
        assert_close(table[name]["value"], value, rtol=ROUNDING, atol=ROUNDING)
        assert (table[name]["error"] is None) == (error is None), name
        if error is not None:
            assert_close(table[name]["error"], error, rtol=1000 * ROUNDING)  # variances are differences of sums


def test_the_table_has_the_rows_of_llama_perplexity_in_its_order():
    names = list(llama_statistics(compared().nll, compared()))
    kld = ["Mean", "Maximum", "99.9%", "99.0%", "95.0%", "90.0%", "Median", "10.0%", "5.0%", "1.0%", "0.1%", "Minimum"]
    delta = [*kld[:6], "75.0%", "Median", "25.0%", *kld[7:]]
    assert names[6:] == [*(f"{n} KLD" for n in kld), *(f"{n} \u0394p" for n in delta), "RMS \u0394p", "Same top p"]


@pytest.mark.parametrize("num, there", [(99, False), (100, True)])
def test_few_tokens_have_no_table(num, there):
    assert (llama_statistics(compared(num).nll, compared(num)) is not None) == there


def test_a_model_that_is_its_reference():
    zeros, ones = np.zeros(200), np.ones(200)
    columns = {"nll": ones, "kld": zeros, "same_top": ones, "delta_p": zeros, "base_nll": ones, "confidence": ones}
    one = Divergence(**columns, error=zeros, variance=zeros)
    table = llama_statistics(one.nll, one)
    assert table["Cor(ln(PPL(Q)), ln(PPL(base)))"]["value"] is None, "of constants there is none"
    assert table["Mean PPL(Q)-PPL(base)"] == {"value": 0, "error": 0} and table["RMS \u0394p"] == {
        "value": 0,
        "error": 0,
    }
