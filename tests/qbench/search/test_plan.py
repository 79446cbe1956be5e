"""Sizes that are known before any work."""

import math
import re
from dataclasses import replace
from typing import ClassVar

import pytest

from qbench.run.work import CalibrationWork
from qbench.search import plan as plan_module
from qbench.search.document import mix_document
from qbench.search.kv_choice import CacheChoice, KVWanted, kv_sizes
from qbench.search.plan import KEYS_OF_A_RECIPE, SearchOptions, file_head_bytes, plan_search
from qbench.search.refusals import directory_head_bytes
from qbench.search.search import _solve
from qbench.search.sites import HF, num_searched, sites_of
from qbench.search.solve import Option
from qbench.search.step_time import StepTimes
from qbench.search.target import parse_target
from qbench.sources import open_source
from quant.artifacts import make_artifact_job, write_artifact
from quant.artifacts.digests import file_bytes
from quant.errors import InputError
from quant.present import present
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe
from quant.recipes.yaml_recipe import recipe_from
from quant.sizes import num_weights

FEW = CalibrationWork(samples=2, seq_len=64)


@pytest.mark.parametrize("model", ["ref:llama", "ref:mla-moe"])
def test_head_of_the_file(tmp_path, model):
    source = open_source(model)
    job = make_artifact_job(source, get_recipe("q4_0"), tmp_path / "m.gguf")
    path = write_artifact(QuantizedSource(job))
    extra = path.stat().st_size - sum(info.size_bytes for info in job.foreseen_tensors().values())
    bound = file_head_bytes(source)
    assert bound - KEYS_OF_A_RECIPE - 32 * len(source.tensors) <= extra <= bound


@pytest.mark.parametrize("model", ["ref:llama", "ref:mla-moe"])
def test_head_of_a_directory(tmp_path, model):
    """The bound holds for the recipe with most modules by name, and is no more than a small part of a model."""
    source = open_source(model)
    formats = list(sites_of(source, HF)[0].formats)
    options = [Option(formats[n % len(formats)], "rtn", 0, 0.0) for n, _ in enumerate(sites_of(source, HF))]
    document = mix_document("mixed", source, sites_of(source, HF), options) | {"method": "rtn"}
    job = make_artifact_job(source, recipe_from(document, "mixed"), tmp_path / "mixed")
    path = write_artifact(QuantizedSource(job))
    tensors = sum(info.size_bytes for info in job.foreseen_tensors().values())
    extra = present(file_bytes(open_source(str(path)))) - tensors
    tokenizer = (path / "tokenizer.json").stat().st_size
    assert extra <= directory_head_bytes(source) < tokenizer + 8 * (extra - tokenizer)


def test_a_budget_in_bytes_is_that_of_the_file(tmp_path):
    source = open_source("ref:llama")
    plan = plan_search(source, SearchOptions(parse_target("2MB"), tmp_path / "m.gguf", FEW, windows=1))
    assert plan.budget_bytes == 2_000_000 - file_head_bytes(source)


def test_the_ends_can_be_reached(tmp_path):
    source, output = open_source("ref:llama"), tmp_path / "m.gguf"
    with pytest.raises(InputError) as error:
        plan_search(source, SearchOptions(parse_target("1B"), output, FEW, windows=1))
    words = str(error.value).split()
    smallest = words[words.index("of", words.index("(a")) + 1]
    plan = plan_search(source, SearchOptions(parse_target(f"{smallest}B"), output, FEW, windows=1))
    assert plan.budget_bytes == plan.fixed_bytes + sum(min(site.formats.values()) for site in plan.sites)


class Known:
    """A survey in which fewer bytes lose more."""

    losses: ClassVar = {"kv-int8": 1e-9, "kv-int4": 1.0}

    def cache_loss(self, cache):
        return self.losses.get(cache.format, 0.0)

    def methods(self, site, fmt):
        return ["rtn"]

    def loss(self, site, fmt, method):
        return 1 / site.formats[fmt]


def step_times(source, sites, threads, progress):
    """A step of 1 s for the smallest mix, and 1 s more per MB of other formats."""
    more = {
        site.name: {fmt: (size - min(site.formats.values())) / 1e6 for fmt, size in site.formats.items()}
        for site in sites
    }
    return StepTimes(1.0, more)


@pytest.fixture(scope="module")
def untimed(tmp_path_factory):
    output = tmp_path_factory.mktemp("plan") / "m.gguf"
    return plan_search(open_source("ref:llama"), SearchOptions(parse_target("16bpw"), output, FEW, windows=1))


@pytest.fixture
def timed(monkeypatch, untimed):
    """Tokens per second, and bits per weight -> a plan"""
    monkeypatch.setattr(plan_module, "measure_step_times", step_times)

    def plan(tok_s, bits=16.0):
        target = parse_target(f"{bits}bpw,{tok_s}tok/s")
        budget = target.budget_bytes(num_weights(untimed.source.tensors), 0)
        options = replace(untimed.options, target=target)
        return plan_module._timed(replace(untimed, options=options, budget_bytes=budget), tok_s, None)

    return plan


def test_a_mix_keeps_the_speed(timed):
    plan = timed(0.8)  # 1.25 s, so 0.25 MB more than the smallest mix
    smallest = plan.fixed_bytes + sum(min(site.formats.values()) for site in plan.sites)
    assert smallest + 240_000 < plan.budget_bytes <= smallest + 250_000
    chosen = _solve(plan, Known())
    formats = {site.name: option.format for site, option in zip(plan.sites, chosen, strict=True)}
    assert plan.is_fast(formats) and 1.24 < plan.step_seconds(formats) <= 1.25
    assert not plan.is_fast({site.name: max(site.formats, key=site.formats.get) for site in plan.sites})


def test_a_size_and_a_speed(timed):
    assert timed(0.8, bits=2.7).bits <= 2.7 < timed(0.8).bits


def test_a_speed_that_no_mix_reaches(timed):
    with pytest.raises(InputError, match=r"the fastest mix of ref:llama within it decodes 1.0 tokens per second here"):
        timed(2.0, bits=5.0)


def test_times_of_a_busy_machine_promise_no_endless_speed(timed, monkeypatch):
    """A step of 1 s, of which other formats seem to save more than all."""

    def noise(source, sites, threads, progress):
        more = {
            site.name: {fmt: -0.1 * (size != max(site.formats.values())) for fmt, size in site.formats.items()}
            for site in sites
        }
        return StepTimes(1.0, more)

    monkeypatch.setattr(plan_module, "measure_step_times", noise)
    timed(3.9)
    with pytest.raises(InputError, match=r"within it decodes 4.0 tokens per second"):
        timed(4.1)


def test_a_plan_without_a_speed_measures_nothing(untimed):
    assert untimed.times is None and untimed.more_seconds == math.inf and untimed.is_fast({})


def test_a_kv_cache_counts_in_the_size(tmp_path):
    source, wanted = open_source("ref:llama"), KVWanted("f32,kv-int8,kv-int4", 1024)
    asked = SearchOptions(parse_target("4MB"), tmp_path / "m.gguf", FEW, windows=1, kv=wanted)
    plan = plan_search(source, asked)
    small, middle, large = (plan.kv[CacheChoice(name)] for name in ("kv-int4", "kv-int8", "f32"))
    assert small < middle < large
    *weights, kv = _solve(plan, Known())
    total = plan.fixed_bytes + sum(option.size_bytes for option in weights) + middle
    assert kv.format == "kv-int8" and 0.98 * plan.budget_bytes < total <= plan.budget_bytes
    of_sites = plan.budget_bytes - middle - plan.fixed_bytes
    assert plan.bits == pytest.approx(8 * of_sites / num_searched(source, plan.sites))


def test_experts_of_all_layers_of_a_directory_share_a_format(tmp_path):
    """The first layer loses most: its experts alone would get more bits than those of the others."""

    class Uneven(Known):
        def loss(self, site, fmt, method):
            return super().loss(site, fmt, method) / (1 + site.layer) ** 8

    source = open_source("ref:mla-moe")
    wanted = [SearchOptions(parse_target("4.6bpw"), tmp_path / name, FEW, windows=1) for name in ("mix", "mix.gguf")]
    directory, file = (plan_search(source, options) for options in wanted)
    chosen = dict(zip((site.name for site in directory.sites), _solve(directory, Uneven()), strict=True))
    assert list(chosen) == [site.name for site in directory.sites]
    assert all(chosen[site.name].size_bytes == site.formats[chosen[site.name].format] for site in directory.sites)
    experts = {option.format for name, option in chosen.items() if name.endswith(".experts")}
    others = {option.format for name, option in chosen.items() if not name.endswith(".experts")}
    assert len(experts) == 1 and len(others) > 1
    assert all(len(places) == 1 for places in file.places)


def test_the_ends_include_the_kv_cache(tmp_path):
    source, output = open_source("ref:llama"), tmp_path / "m.gguf"
    ends = []
    for kv in (None, KVWanted("kv-int8", 1024)):
        with pytest.raises(InputError) as error:
            plan_search(source, SearchOptions(parse_target("1B"), output, FEW, windows=1, kv=kv))
        ends.append([int(size) for size in re.findall(r"of (\d+) bytes", str(error.value))])
    assert {b - a for a, b in zip(*ends, strict=True)} == set(kv_sizes(source, KVWanted("kv-int8", 1024)).values())


@pytest.mark.parametrize("policy", ["window:1024", "h2o:budget=100%", "quest:budget=256"])
def test_a_policy_that_keeps_all_that_is_measured(tmp_path, policy):
    wanted = KVWanted("f32", 1024, policies=("full", policy))
    asked = SearchOptions(parse_target("8MB"), tmp_path / "m.gguf", FEW, windows=1, kv=wanted)
    with pytest.raises(InputError, match=re.escape(f"--policy {policy} keeps all of the ")):
        plan_search(open_source("ref:llama"), asked)
