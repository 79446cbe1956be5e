"""The survey's divergences against whole models with one group rounded."""

import numpy as np
import pytest
import torch
from support.memory_source import MemorySource

from qbench.quality.kld.kld import divergence
from qbench.run.options import DEFAULTS
from qbench.runtime.load import load_model
from qbench.search.groups import group_sites
from qbench.search.probes import FEEDBACK, ProbeRounding
from qbench.search.sites import HF, sites_of
from qbench.search.survey import HEAD_GROUP, SurveyPlan, survey
from qbench.search.survey_tokens import joint_tokens, kv_tokens, single_tokens
from quant.calibration.tokens import CalibrationTokens
from quant.formats import dequantize, get_format
from quant.kv import KVScheme, get_kv_format
from quant.kv.source import KVSource
from quant.models import EMBEDDING, HEAD

TOKENS = np.random.default_rng(1).integers(0, 320, (16, 32))
PROBE = "q8_0"  # nearest to 8.4 bits; it rounds in one way with and without importance


class Loud(MemorySource):
    """Weights so large that logits differ by several: divergences are far above rounding."""

    def __init__(self, **changes):
        super().__init__(**changes)
        self.weights = {name: 4 * weight for name, weight in self.weights.items()}


class Changed(Loud):
    """The model with these tensors rounded."""

    def __init__(self, names, probe=PROBE, made=None, **changes):
        """made: weights that are rounded already"""
        super().__init__(**changes)
        for name in names:
            plain = dequantize(get_format(probe).quantize(self.weights[name]))
            self.weights[name] = (made or {}).get(name, plain)


@pytest.fixture
def made(monkeypatch):
    """Canonical name -> weight as the probes round it with error feedback"""
    found, fed_back = {}, ProbeRounding.fed_back

    def record(self, *args):
        tensors = fed_back(self, *args)
        found.update({name: dequantize(each) for name, each in tensors.items()})
        return tensors

    monkeypatch.setattr(ProbeRounding, "fed_back", record)
    return found


def probed(source):
    """The windows that the survey's probes of one group read."""
    return torch.from_numpy(single_tokens(TOKENS, len(set(group_sites(sites_of(source)).values()))))


def logits_of(source):
    return load_model(source, DEFAULTS, impl="reference")(probed(source)).flatten(0, 1)


def kld(source, reference):
    return divergence(logits_of(source), reference, probed(source).flatten()).kld.mean()


def run(source, tmp_path, threads=1):
    plan = SurveyPlan(CalibrationTokens(TOKENS, "ids", 0, len(TOKENS)), 8.4, "fp32", threads)
    return survey(source, sites_of(source), plan, tmp_path)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_kld_is_that_of_the_model_with_one_group_rounded(tmp_path, made, tied):
    source = Loud(tie_word_embeddings=tied)
    found, groups = run(source, tmp_path), group_sites(sites_of(source))
    reference = logits_of(source)
    for site in sites_of(source):
        if not tied or EMBEDDING not in site.names:
            assert all(name in made for name in site.names) == (site.layer is not None)
            whole = kld(Changed(site.names, made=made, tie_word_embeddings=tied), reference)
            group = HEAD_GROUP if HEAD in site.names else groups[site.name]
            # The logits of both ways round differently, by some 2**-22, and q8_0 changes them by 2**-9.
            assert found.kld[group] == pytest.approx(whole, rel=2**-8), site


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_a_directory_has_no_tables_to_search(tmp_path, made, tied):
    source = Loud(tie_word_embeddings=tied)
    sites = sites_of(source, HF)
    plan = SurveyPlan(CalibrationTokens(TOKENS, "ids", 0, len(TOKENS)), 8.4, "fp32", 1)
    found, groups = survey(source, sites, plan, tmp_path), group_sites(sites)
    assert {use.group for uses in found.uses.values() for use in uses} == set(groups.values()) == set(found.factors)
    shown = torch.from_numpy(single_tokens(TOKENS, len(sites)))
    reference = load_model(source, DEFAULTS, impl="reference")(shown).flatten(0, 1)
    for site in sites:
        changed = Changed(site.names, "w8", made, tie_word_embeddings=tied)
        logits = load_model(changed, DEFAULTS, impl="reference")(shown).flatten(0, 1)
        whole = divergence(logits, reference, shown.flatten()).kld.mean()
        assert found.kld[groups[site.name]] == pytest.approx(whole, rel=2**-8), site
        # Integers in groups have no form with importance, so the survey does not try one.
        assert found.methods(site, "w8") == ["rtn", "gptq"] and found.methods(site, "bf16") == ["rtn"]
        assert found.loss(site, "w8", "gptq") < found.loss(site, "w8", "rtn") < found.loss(site, "w4g32", "rtn")


def test_a_tied_table_costs_as_embedding_and_as_head(tmp_path):
    source = Loud(tie_word_embeddings=True)
    found = run(source, tmp_path)
    table = next(site for site in sites_of(source) if EMBEDDING in site.names)
    uses = found.uses[table.name]
    assert [use.group for use in uses] == [group_sites(sites_of(source))[table.name], HEAD_GROUP]
    parts = [found.factors[use.group] * use.errors[PROBE, "rtn"] for use in uses]
    assert parts == pytest.approx([found.kld[use.group] for use in uses])
    assert found.loss(table, PROBE, "rtn") == pytest.approx(sum(parts) * found.interaction[FEEDBACK])
    whole = kld(Changed([EMBEDDING], tie_word_embeddings=True), logits_of(source))
    # Two small independent changes: their divergences add up, apart from the third order.
    assert sum(parts) == pytest.approx(whole, rel=0.2)


def test_losses_of_all_sites_at_the_probes_are_the_divergence_of_the_whole_rounded_model(tmp_path, made):
    source = Loud()
    found, sites = run(source, tmp_path), sites_of(source)
    shown = torch.from_numpy(joint_tokens(TOKENS))
    rounded = Changed([name for site in sites for name in site.names], made=made)
    logits = [load_model(each, DEFAULTS, impl="reference")(shown).flatten(0, 1) for each in (rounded, source)]
    whole = float(divergence(*logits, shown.flatten()).kld.mean())
    groups = {HEAD_GROUP if HEAD in site.names else group_sites(sites)[site.name] for site in sites}
    alone = sum(found.kld[group] for group in groups)
    assert alone * found.interaction[FEEDBACK] == pytest.approx(whole, rel=2**-8)


def test_threads_do_not_change_it(tmp_path):
    one, two = (run(Loud(), tmp_path, threads) for threads in (1, 2))
    assert one == two


def test_kv_formats_cost_as_in_the_whole_model(tmp_path):
    source, names = Loud(), ("kv-int8", "kv-fp8")
    schemes = {name: KVScheme(get_kv_format(name)) for name in names}
    plan = SurveyPlan(CalibrationTokens(TOKENS, "ids", 0, len(TOKENS)), 8.4, "fp32", 1, kv=schemes, kv_context=48)
    found = survey(source, sites_of(source), plan, tmp_path)
    tokens = torch.from_numpy(kv_tokens(TOKENS, len(names), 48))
    reference, *others = [
        load_model(each, DEFAULTS, impl="reference")(tokens).flatten(0, 1)
        for each in (source, *(KVSource(source, name) for name in names))
    ]
    whole = [divergence(logits, reference, tokens.flatten()).kld.mean() for logits in others]
    assert whole[1] > 4 * whole[0]
    assert [found.kv[name] for name in names] == pytest.approx(whole, rel=2**-8)
