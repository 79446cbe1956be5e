"""Which candidate is written."""

from dataclasses import replace

from qbench.measure.records.kept_searches import SearchedFile
from qbench.search.search import choose
from qbench.statistics.estimate import Estimate

MIX = SearchedFile("mix", 100, 0.1, Estimate(0.10))
LLAMA = SearchedFile("imatrix-q4_k", 100, 0.2, Estimate(0.30), Estimate(0.33, p_value=0.001))
GPTQ = SearchedFile("gptq-q4_k", 90, 0.2, Estimate(0.11), Estimate(0.91, p_value=0.3))


def test_the_mix_must_beat_the_best_rival_beyond_its_noise():
    assert choose([MIX, LLAMA, GPTQ], "mix") == (
        "gptq-q4_k",
        "no mix was better than gptq-q4_k beyond the noise of the held-out text",
    )
    surer = replace(GPTQ, ratio=Estimate(0.91, p_value=0.04))
    assert choose([MIX, LLAMA, surer], "mix")[0] == "mix"


def test_a_mix_that_is_surely_worse_is_not_written():
    worse = replace(GPTQ, ratio=Estimate(1.4, p_value=0.001), kld=Estimate(0.07))
    assert choose([MIX, LLAMA, worse], "mix")[0] == "gptq-q4_k"


def test_text_too_short_for_a_p_value_decides_nothing():
    assert choose([MIX, replace(LLAMA, ratio=Estimate(0.33))], "mix")[0] == "imatrix-q4_k"


def test_without_rivals():
    assert choose([MIX], "mix") == ("mix", "no fixed recipe is within the target")
