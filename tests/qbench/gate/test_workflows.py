"""The GitHub workflows that are there to copy: the one that runs strangers' code may write nothing."""

import re

import pytest
import yaml
from support.data import REPO

from qbench.cli.gate import command

FOLDER = REPO / ".github" / "workflows"
RUNS_CODE = re.compile(r"actions/checkout|make |qbench (?!gate could)")


def workflow(name: str) -> dict:
    return yaml.load((FOLDER / f"{name}.yml").read_text(), yaml.BaseLoader)  # as YAML 1.1 has it, `on` is a flag


def steps(document: dict) -> list[dict]:
    return [step for job in document["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", ["qbench-gate", "qbench-gate-comment"])
def test_jobs_with_write_access_run_no_code_of_the_pull_request(name):
    document = workflow(name)
    may_write = "write" in document["permissions"].values()
    runs_code = any(RUNS_CODE.search(step.get("uses", "") + step.get("run", "")) for step in steps(document))
    assert may_write != runs_code
    assert not any("${{" in step.get("run", "") for step in steps(document)), "what an event says is no shell text"


def test_the_comment_listens_to_the_gate_and_takes_the_file_that_it_leaves():
    gated, told = workflow("qbench-gate"), workflow("qbench-gate-comment")
    assert told["on"]["workflow_run"]["workflows"] == [gated["name"]]
    (left,) = (step["with"] for step in steps(gated) if "upload-artifact" in step.get("uses", ""))
    (run,) = (step["run"] for step in steps(told))
    assert f"--name {left['name']}" in run and f" {left['path']} " in run


def test_the_command_is_one_that_qbench_knows():
    (line,) = (step["run"] for step in steps(workflow("qbench-gate")) if "qbench gate --" in step.get("run", ""))
    options = {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", line.partition("qbench gate")[2])) <= options
    assert "--comment gate.md" in line
