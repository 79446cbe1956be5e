"""One site per tensor of the GGUF file or per product of a directory, and patterns that match its tensors alone."""

from fnmatch import fnmatchcase
from math import prod

import pytest
from support.memory_source import MemorySource

from qbench.search.groups import group_sites
from qbench.search.sites import GGUF, HF, fixed_bytes, num_searched, patterns_of, sites_of
from qbench.sources import open_source
from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.gguf_layout import layout
from quant.job import make_job
from quant.models import ModelConfig
from quant.recipes import get_recipe

EXPERTS = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}


@pytest.fixture(params=["llama", "ref:mla-moe", "mixtral"])
def source(request):
    if request.param.startswith("ref:"):
        return open_source(request.param)
    return MemorySource(**(EXPERTS if request.param == "mixtral" else {}))


def test_sites_are_the_files_tensors(source):
    sites = sites_of(source)
    entries = {entry.gguf_name: entry.names for entry in layout(F32Vectors(source), ModelConfig.of(source))}
    assert all(entries[site.name] == site.names for site in sites)
    left = {name for names in entries.values() for name in names} - {name for site in sites for name in site.names}
    assert all(len(source.tensors[name].shape) == 1 or "gate.weight" in name for name in left)
    assert fixed_bytes(source, sites) == 4 * sum(prod(source.tensors[name].shape) for name in left)


def test_sites_of_a_directory_are_the_decoders_linears(source):
    sites = sites_of(source, HF)
    job = make_job(source, get_recipe("rtn-w8"))
    quantized = [name for name, choice in job.choices.items() if choice.format == "w8"]
    assert sorted(name for site in sites for name in site.names) == sorted(quantized)
    kept = sum(info.size_bytes for name, info in job.foreseen_tensors().items() if name not in quantized)
    assert fixed_bytes(source, sites) == kept
    assert num_searched(source, sites) == sum(prod(source.tensors[name].shape) for name in quantized)
    common = [fmt for fmt in sites[0].formats if fmt != "bf16"]  # each is a recipe of the whole model
    assert all(list(site.formats) == [*common, *["bf16"] * (not site.is_experts)] for site in sites)
    names = {site.name: {name.split(".")[-2] for name in site.names} for site in sites}
    for name, words in names.items():
        if name.endswith("experts"):
            assert len(words) == 3, words
        elif name.endswith(("qkv_proj", "gate_up_proj")):
            assert words <= {"q_proj", "k_proj", "v_proj"} or words == {"gate_proj", "up_proj"}
        else:
            assert words == {name.rpartition(".")[2]}


@pytest.mark.parametrize("container", [GGUF, HF])
def test_patterns_match_only_the_site(source, container):
    names = list(source.tensors)
    for site in sites_of(source, container):
        matched = [name for name in names if any(fnmatchcase(name, each) for each in patterns_of(site, names))]
        assert sorted(matched) == sorted(site.names)


def test_groups_are_few(source):
    sites = sites_of(source)
    assert len(set(group_sites(sites).values())) == len(sites)
    for most in (4, 6, len(sites) - 1):
        groups = group_sites(sites, most)
        assert set(groups) == {site.name for site in sites}
        assert len(set(groups.values())) <= most
