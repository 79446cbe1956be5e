"""Fixed recipes next to a mix."""

import pytest

from qbench.search.kv_choice import KVCost
from qbench.search.rivals import choose_rivals, near_rivals
from qbench.search.sites import HF, fixed_bytes, num_searched, sites_of
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


@pytest.mark.parametrize("model", ["ref:llama", "ref:mla-moe"])
def test_rivals_of_a_directory_are_uniform(model):
    source = open_source(model)
    sites = sites_of(source, HF)
    budget = fixed_bytes(source, sites) + num_searched(source, sites) * 4.2 / 8
    found = choose_rivals(source, sites, Known(), budget)
    four = next(fmt for fmt in sites[0].formats if fmt.startswith("w4g"))
    assert [rival.recipe.name for rival in found] == [f"rtn-{four}", f"gptq-{four}"]
    assert {rival.recipe.packing for rival in found} == {"compressed-tensors"}
    assert all(rival.size_bytes <= budget for rival in found)


def test_rivals_that_are_predicted_far_worse_are_left_out():
    source = open_source("ref:llama")
    found = choose_rivals(source, sites_of(source), Known(), num_weights(source.tensors), ablation=True)
    assert [rival.recipe.method for rival in near_rivals(found)] == ["gptq"] and near_rivals([]) == []


def test_the_kv_cache_counts_in_the_budget_of_a_rival():
    source, loss = open_source("ref:llama"), 1e-9
    budget = int(num_weights(source.tensors) * 6.7 / 8)
    small, large = KVCost("kv-int8", budget // 10, loss), KVCost("f32", budget // 2, 0.0)
    (free,) = choose_rivals(source, sites_of(source), Known(), budget * 2, kv=[large])[1:]
    assert (free.recipe.name, free.recipe.kv, "kv" in free.document) == ("gptq-q6_k", None, False)
    (tight,) = choose_rivals(source, sites_of(source), Known(), budget, kv=[small, large])[1:]
    assert tight.recipe.name.endswith("+kv-int8") and tight.recipe.kv == tight.document["kv"] == "kv-int8"
    assert tight.size_bytes + small.size_bytes <= budget < tight.size_bytes + large.size_bytes
    alone = sum(Known().loss(site, tight.formats[site.name], "gptq") for site in sites_of(source))
    assert tight.loss == pytest.approx(loss + alone)
