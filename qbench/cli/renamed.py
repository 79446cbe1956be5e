"""Options and variables of earlier versions: one line says their new names."""

import os

import click

from quant.errors import InputError

# Options that are keys of --ranks now.
RANKS = {
    "--tp": "tp=N",
    "--pp": "pp=N",
    "--stages": "pp=N",
    "--ep": "ep=N",
    "--sp": "sp=N",
    "--cut": "tp=N,cut=gather",
    "--micro-batches": "pp=N,micro-batches=N",
    "--dispatch": "ep=N,dispatch=all-to-all",
    "--link": "tp=N,link=shm",
    "--rank-timeout": "tp=N,timeout=SECONDS",
    "--ray": "tp=N,ray=HOST:PORT",
    "--restarts": "tp=N,ray=HOST:PORT,restarts=N",
}
RANKED = ("eval", "bench", "sweep", "generate", "compare", "engine", "serve")  # commands that have --ranks

# An old option -> the new one, by command; "": of every command.
OPTIONS = {
    "": {"--products": "--compute", "--cache-kind": "--cache", "--kv-format": "--kv"},
    "recommend": {"--caches": "--kv"},
    "serve": {"--kv-disk": "--kv-store-size", "--memory": "--kv-memory"},
    "engine": {"--kv-disk": "--kv-store-size"},
    "report": {"--caches": "--cache-table"},
    "mla": {"--plan": "--mode"},
    "sweep": {"--plan": "--dry-run", "--again": "--launches 2"},
    "quantize": {"--plan": "--dry-run", "--length": "--seq-len"},
}

# An option that other commands have -> a command line with it, by command.
MOVED = {
    "bench": {
        "--breakdown": "qbench breakdown MODEL",
        "--vs": "qbench race MODEL --vs llama.cpp",
        "--launches": "qbench race MODEL --launches N",
        "--pause": "qbench race MODEL --launches N --pause SECONDS",
        "--keep": "qbench race MODEL --vs llama.cpp --keep PATH",
        "--cpu-time": "qbench race A B --cpu-time` or `qbench breakdown MODEL --cpu-time",
    },
    "quantize": {
        name: f"qbench search MODEL --target SIZE {name}{value} -o OUT"
        for name, value in {
            "--context": " N",
            "--ctx": " N",
            "--kv": " FORMAT",
            "--policy": " POLICY",
            "--batch": " N",
            "--text": " FILE",
            "--windows": " N",
            "--exhaustive": "",
            "--ablation": "",
            "--keep": " PATH",
        }.items()
    },
    "race": {name: f"qbench bench MODEL --ranks {new}" for name, new in RANKS.items()},
}

PAGED = ("plan", "engine", "serve")  # whose prompts come in parts, but a prefill pattern looks at whole prompts
PATTERNED = "generate, eval and bench"


def new_option(error: click.NoSuchOption) -> str | None:
    """The line for an option of an earlier version; None for another unknown option."""
    command = error.ctx.info_name if error.ctx else ""
    new = {**OPTIONS[""], **OPTIONS.get(command or "", {})}.get(error.option_name)
    if new is None and error.option_name == "--prefill" and command in PAGED:
        return f"{command} reads every prompt densely; --prefill PATTERN is an option of {PATTERNED}"
    if new is None and command in RANKED and error.option_name in RANKS:
        new = f"--ranks {RANKS[error.option_name]}"
    if line := MOVED.get(command or "", {}).get(error.option_name):
        return f"{command} has no {error.option_name}; use `{line}`"
    return new and f"{error.option_name} is called {new} now"


VARIABLES = {
    "QBENCH_MLA_PLAN": "QBENCH_MLA_MODE",
    "QBENCH_K_QUANT_PRODUCTS": "QBENCH_K_QUANT_COMPUTE",
    "QBENCH_F16_PRODUCTS": "QBENCH_F16_COMPUTE",
}


def check_variables() -> None:
    """raises InputError for a variable of the environment that nobody reads any more"""
    for old, new in VARIABLES.items():
        if old in os.environ:
            raise InputError(f"{old} is called {new} now")
