"""The models of a suite on several ranks: cases whose logits are not those of one rank."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from qbench.comparison.several_ranks import RED, RankDistance
from qbench.gate.timed import Say
from qbench.sweeps.suite.load_suite import load_suite
from qbench.words.written import real_path

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
DIVISIONS = "tp,gather,pp,ep,sp"  # those that are illegal are refused, and are no failure


def apart_on_ranks(suite: Path, num_ranks: int, say: Say) -> dict[str, str]:
    """`GateResult.apart`; `torchrun` starts the ranks of `qbench compare`, with one window of text."""
    loaded = load_suite(real_path(suite))
    found: dict[str, str] = {}
    for model in loaded.axes["model"]:
        say(f"comparing {model} on {num_ranks} ranks with one rank")
        command = [
            "compare",
            model,
            "--divisions",
            DIVISIONS,
            "--recipes",
            ",".join(loaded.axes["recipe"]),
            "--windows",
            "1",
        ]
        done = subprocess.run(
            [*TORCHRUN, str(num_ranks), "-m", "qbench", *command, "--json"],
            capture_output=True,
            text=True,
            check=False,
            encoding="utf-8",
        )
        found |= dict(red_rows(done.stdout))
        if done.returncode and not found:
            found[f"{model} on {num_ranks} ranks"] = error_of(done.stderr)
    return found


def red_rows(printed: str) -> Iterator[tuple[str, str]]:
    for line in printed.splitlines():
        row: Mapping = json.loads(line)
        if row["verdict"] in RED:
            one = RankDistance.from_json(row)
            delta, floor = one.found.delta, one.found.floor
            klds = f": mean KLD {delta.mean_kld:.2e}, floor {floor.mean_kld:.2e}" if delta and floor else ""
            yield f"{one.model} {one.recipe} on ranks ({one.layout})", f"{one.found.verdict}{klds}"


def error_of(printed: str) -> str:
    """The line of rank 0 among those of torchrun"""
    lines = [line for line in printed.splitlines() if line.startswith("qbench: ")]
    return (lines or printed.splitlines() or ["it printed nothing"])[-1].removeprefix("qbench: ")
