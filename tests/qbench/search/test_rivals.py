"""Fixed recipes next to a mix."""

import pytest

from qbench.search.rivals import choose_rivals, near_rivals
from qbench.search.sites import sites_of
from qbench.sources import open_source
from quant.sizes import num_weights


class Known:
    """Every format by every method; fewer bytes lose more, and each method a little less than the one before."""

    def methods(self, site, fmt):
        return ["rtn", "imatrix", "gptq"]

    def loss(self, site, fmt, method):
        return {"rtn": 8, "imatrix": 4, "gptq": 1}[method] / site.formats[fmt]


@pytest.mark.parametrize("model", ["ref:llama", "ref:mla-moe"])
def test_an_ablation_has_a_rival_of_each_kind(model):
    source = open_source(model)
    budget = num_weights(source.tensors) * 6.7 / 8
    found = choose_rivals(source, sites_of(source), Known(), budget, ablation=True)
    assert [rival.recipe.name for rival in found] == ["uniform-q6_k", "q6_k", "imatrix-q6_k", "gptq-q6_k"]
    assert all(rival.size_bytes <= budget for rival in found)
    two = choose_rivals(source, sites_of(source), Known(), budget)
    assert [rival.recipe.name for rival in two] == ["imatrix-q6_k", "gptq-q6_k"]


def test_rivals_that_are_predicted_far_worse_are_left_out():
    source = open_source("ref:llama")
    found = choose_rivals(source, sites_of(source), Known(), num_weights(source.tensors), ablation=True)
    assert [rival.recipe.method for rival in near_rivals(found)] == ["gptq"] and near_rivals([]) == []
