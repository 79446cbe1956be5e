"""Texts that a server returns under cache policies: those of generation, whatever holds the model."""

from dataclasses import replace

import pytest
from support.artifact import write_artifact
from support.small_directory import write_small
from support.tiny_server import running

from qbench.api.loaded import LoadedModel
from qbench.calibration.open_subject import open_subject
from qbench.run.options import RunOptions
from qbench.runtime.engine import EngineOptions
from qbench.sources import open_source
from quant.recipes import get_recipe

PROMPT = "The king walked to the river. " * 6
ASKED = {"prompt": PROMPT, "max_tokens": 16, "temperature": 0}


@pytest.fixture(scope="module")
def specs(tmp_path_factory) -> dict[str, str]:
    folder, source = tmp_path_factory.mktemp("models"), open_source("ref:llama")
    directory = write_artifact(source, folder / "hf", recipe=get_recipe("rtn-w8"))
    file = write_artifact(source, folder / "m.gguf", recipe=get_recipe("q8_0"))
    experts = write_small("mixtral", folder / "mixtral")
    written = {"directory": directory, "gguf": file, "experts": experts}
    return {kind: str(path) for kind, path in written.items()} | {"latents and experts": "ref:mla-moe"}


@pytest.mark.parametrize("policy", ["snapkv:budget=24,window=8", "tova:budget=24"])
@pytest.mark.parametrize("kind", ["directory", "gguf", "experts", "latents and experts"])
def test_a_served_text_is_the_generated_one(specs, kind, policy):
    spec = specs[kind]
    options = RunOptions(policy=policy, compute="exact", threads=1)
    expected, full = LoadedModel(spec, options), LoadedModel(spec, replace(options, policy="full"))
    with running(open_subject(spec, options), EngineOptions(num_pages=256, max_batch=2)) as server:
        answer = server.client().completions.create(model=spec, **ASKED).choices[0].text
    assert answer == expected.generate(PROMPT, 16)
    assert answer != full.generate(PROMPT, 16), "the policy changes no text"
