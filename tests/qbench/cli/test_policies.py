"""`--policy` in every command that runs a model: directories, a GGUF file, experts, latents, and scores by distance."""

import json

import pytest
from support.artifact import write_artifact
from support.small_directory import write_small

from qbench.sources import open_source
from quant.recipes import get_recipe

DIRECTORY, GGUF, LATENTS = "directory", "m.gguf", "ref:mla-moe"
EXPERTS, ALIBI = "qwen3moe", "bloom"
POLICIES = {
    DIRECTORY: ("h2o:budget=48", "adakv:budget=48,window=8", "sinks:4+44", "quest:budget=48"),
    GGUF: ("snapkv:budget=48,window=8", "fastgen", "window:48", "infllm:budget=112,init=16,local=48,block=16"),
    LATENTS: ("tova:budget=48", "keydiff:budget=48", "recent:budget=48", "expected-attention:budget=48"),
    EXPERTS: ("h2o:budget=48", "adakv:budget=48,window=8", "pyramidkv:budget=48,window=8", "quest:budget=48"),
    ALIBI: ("window:48",),
}
COMMANDS = {
    "generate": ("--prompt", "The king walked to the river. " * 12, "-n", "4"),
    "eval": ("--windows", "1", "--text", "text.txt"),
    "bench": ("-p", "128", "-n", "2", "-r", "1"),
    "engine": ("--requests", "2", "--prompt", "80,96", "--new", "2,4", "--rounds", "1"),
    "plan": ("--ctx", "512"),
}
# policy -> why models whose scores depend on the distance of tokens cannot have it
REFUSED = {
    "h2o:budget=48": "lowers scores by distance (ALiBi), which eviction changes; use policy full",
    "sinks:4+44": "has no rotary positions",
    "recent:budget=48": "lowers scores by distance (ALiBi), which eviction changes; use policy full",
    "quest:budget=48": "has ALiBi",
    "infllm:budget=112,init=16,local=48,block=16": "ALiBi",
}
SUITE = "name: s\nmodels: [{model}]\nrecipes: [bf16]\npolicies: ['{policy}']\nbench: {{pp: 128, tg: 2}}\n"
NOT_IN_ENGINE = ("quest", "infllm")


@pytest.fixture(autouse=True)
def text(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("The king walked to the river. " * 300)


@pytest.fixture(scope="module")
def alibi(tmp_path_factory) -> str:
    return str(write_small(ALIBI, tmp_path_factory.mktemp("alibi") / ALIBI))


@pytest.fixture(scope="module")
def models(tmp_path_factory, alibi) -> dict[str, str]:
    folder, source = tmp_path_factory.mktemp("models"), open_source("ref:llama")
    written = {
        name: write_artifact(source, folder / name, recipe=get_recipe(how))
        for name, how in ((DIRECTORY, "rtn-w8"), (GGUF, "q8_0"))
    }
    written |= {EXPERTS: write_small(EXPERTS, folder / EXPERTS)}
    return {name: str(path) for name, path in written.items()} | {LATENTS: LATENTS, ALIBI: alibi}


@pytest.mark.exhaustive("85 command lines")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("kind", "policy"), [(kind, policy) for kind in POLICIES for policy in POLICIES[kind]])
def test_a_command_runs_under_the_policy(qbench, models, kind, policy, command):
    words = (*COMMANDS[command], "--reference", models[kind]) if command == "eval" else COMMANDS[command]
    outcome = qbench(command, models[kind], "--policy", policy, *words, "--json")
    if command == "engine" and policy.startswith(NOT_IN_ENGINE):
        outcome.fails_with("lets each query choose what it reads", "use policy full")
        return
    assert outcome.status == 0, outcome.err
    assert policy in outcome.out and json.loads(outcome.out)


@pytest.mark.parametrize(
    ("command", "policy"),
    [
        *((command, policy) for command in (*COMMANDS, "serve") for policy in list(REFUSED)[:2]),
        *(("eval", policy) for policy in list(REFUSED)[2:]),
    ],
)
def test_scores_by_distance_are_refused_in_one_line(qbench, alibi, command, policy):
    words = ("--port", "0") if command == "serve" else COMMANDS[command]
    qbench(command, alibi, "--policy", policy, *words).fails_with(REFUSED[policy])


@pytest.mark.exhaustive("a process per case")
@pytest.mark.parametrize("kind", POLICIES)
def test_a_sweep_runs_under_the_policy(qbench, models, kind, tmp_path):
    suite, policy = tmp_path / "s.yaml", POLICIES[kind][0]
    suite.write_text(SUITE.format(model=models[kind], policy=policy))
    assert qbench("sweep", suite, "-o", tmp_path / "run").status == 0
    table = qbench("report", tmp_path / "run", "--policies")
    assert table.status == 0 and policy.partition(":")[0] in table.out
