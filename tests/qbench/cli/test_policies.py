"""`--policy` in every command that runs a model: on a directory, a GGUF file, and a model of latents and experts."""

import json

import pytest
from support.artifact import write_artifact

from qbench.sources import open_source
from quant.recipes import get_recipe

DIRECTORY, GGUF, LATENTS = "directory", "m.gguf", "ref:mla-moe"
POLICIES = {
    DIRECTORY: ("h2o:budget=48", "adakv:budget=48,window=8", "sinks:4+44", "quest:budget=48"),
    GGUF: ("snapkv:budget=48,window=8", "fastgen", "window:48", "infllm:budget=112,init=16,local=48,block=16"),
    LATENTS: ("tova:budget=48", "keydiff:budget=48", "recent:budget=48", "expected-attention:budget=48"),
}
COMMANDS = {
    "generate": ("--prompt", "The king walked to the river. " * 12, "-n", "4"),
    "eval": ("--windows", "1", "--reference", "ref:llama"),
    "bench": ("-p", "128", "-n", "2", "-r", "1"),
    "engine": ("--requests", "2", "--prompt", "80,96", "--new", "2,4", "--rounds", "1"),
    "plan": ("--ctx", "512"),
}
SUITE = "name: s\nmodels: [{model}]\nrecipes: [bf16]\npolicies: ['{policy}']\nbench: {{pp: 128, tg: 2}}\n"
NOT_IN_ENGINE = ("quest", "infllm")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    folder, source = tmp_path_factory.mktemp("models"), open_source("ref:llama")
    written = {
        name: write_artifact(source, folder / name, recipe=get_recipe(how))
        for name, how in ((DIRECTORY, "rtn-w8"), (GGUF, "q8_0"))
    }
    return {name: str(path) for name, path in written.items()} | {LATENTS: LATENTS}


@pytest.mark.exhaustive("60 command lines")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("kind", "policy"), [(kind, policy) for kind in POLICIES for policy in POLICIES[kind]])
def test_a_command_runs_under_the_policy(qbench, models, kind, policy, command):
    outcome = qbench(command, models[kind], "--policy", policy, *COMMANDS[command], "--json")
    if command == "engine" and policy.startswith(NOT_IN_ENGINE):
        outcome.fails_with("lets each query choose what it reads", "use policy full")
        return
    assert outcome.status == 0, outcome.err
    assert policy in outcome.out and json.loads(outcome.out)


@pytest.mark.exhaustive("a process per case")
@pytest.mark.parametrize("kind", POLICIES)
def test_a_sweep_runs_under_the_policy(qbench, models, kind, tmp_path):
    suite, policy = tmp_path / "s.yaml", POLICIES[kind][0]
    suite.write_text(SUITE.format(model=models[kind], policy=policy))
    assert qbench("sweep", suite, "-o", tmp_path / "run").status == 0
    table = qbench("report", tmp_path / "run", "--policies")
    assert table.status == 0 and policy.partition(":")[0] in table.out
