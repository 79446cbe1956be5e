"""Times of steps, with a clock that counts the weights that a step reads."""

import numpy as np
import pytest

from qbench.search import step_time
from qbench.search.sites import sites_of
from qbench.search.step_time import measure_step_times
from qbench.sources import open_source
from quant.models import EMBEDDING, ModelConfig, split_name
from quant.source import Source

FORMATS = ("q2_k", "q3_k", "iq4_xs", "q4_k", "q5_k", "q6_k", "q8_0", "f16", "iq4_nl", "q4_0", "q4_1", "q5_0", "q5_1")
COST = {fmt: 1.0 + (7 * place) % 13 for place, fmt in enumerate(FORMATS)}
REST = 1e6  # of a step, apart from products


def seconds_of(source: Source) -> float:
    config, total = ModelConfig.of(source), REST
    for name, info in source.tensors.items():
        if len(info.shape) == 2 and info.format in COST and (name != EMBEDDING or config.tie_word_embeddings):
            share = 1.0 if split_name(name)[2] is None else config.expert_share
            total += share * info.shape[0] * info.shape[1] * COST[info.format]
    return total


@pytest.mark.parametrize("model", ["ref:llama", "ref:mla-moe"])
def test_the_time_of_any_mix_is_that_of_its_products(monkeypatch, model):
    monkeypatch.setattr(step_time, "_timed", lambda source, threads, clock: lambda: seconds_of(source))
    source = open_source(model)
    sites = sites_of(source)
    times = measure_step_times(source, sites, 1)
    rng = np.random.default_rng(0)
    for _ in range(3):
        formats = {site.name: str(rng.choice(list(site.formats))) for site in sites}
        expected = seconds_of(step_time._rounded(source, sites, formats))
        assert times.step(formats) == pytest.approx(expected, rel=1e-9)
