"""Sizes that are known before any work."""

import pytest

from qbench.search.plan import KEYS_OF_A_RECIPE, SearchOptions, file_head_bytes, plan_search
from qbench.search.target import parse_target
from qbench.sources import open_source
from quant.artifacts import make_artifact_job, write_artifact
from quant.errors import InputError
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe


@pytest.mark.parametrize("model", ["ref:llama", "ref:mla-moe"])
def test_head_of_the_file(tmp_path, model):
    source = open_source(model)
    job = make_artifact_job(source, get_recipe("q4_0"), tmp_path / "m.gguf")
    path = write_artifact(QuantizedSource(job))
    extra = path.stat().st_size - sum(info.size_bytes for info in job.foreseen_tensors().values())
    bound = file_head_bytes(source)
    assert bound - KEYS_OF_A_RECIPE - 32 * len(source.tensors) <= extra <= bound


def test_a_budget_in_bytes_is_that_of_the_file(tmp_path):
    source = open_source("ref:llama")
    plan = plan_search(source, SearchOptions(parse_target("2MB"), tmp_path / "m.gguf"))
    assert plan.budget_bytes == 2_000_000 - file_head_bytes(source)


def test_the_ends_can_be_reached(tmp_path):
    source, output = open_source("ref:llama"), tmp_path / "m.gguf"
    with pytest.raises(InputError) as error:
        plan_search(source, SearchOptions(parse_target("1B"), output))
    words = str(error.value).split()
    smallest = words[words.index("of", words.index("(a")) + 1]
    plan = plan_search(source, SearchOptions(parse_target(f"{smallest}B"), output))
    assert plan.budget_bytes == plan.fixed_bytes + sum(min(site.formats.values()) for site in plan.sites)
