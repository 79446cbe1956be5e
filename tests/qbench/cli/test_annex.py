"""Commands outside the core: other packages register theirs, and no part of the annex is imported without need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TABLE = 'COMMANDS = {"Games": {"pick": "Pick one of the words"}, "Choose": {"guess-size": "Guess the size"}}'
PICK = """
import click

@click.command("pick")
@click.argument("words", nargs=-1)
def command(words):
    \"\"\"Print the last of WORDS.\"\"\"
    click.echo(words[-1])
"""


def install(folder: Path, name: str, table: str, **modules: str) -> None:
    """A package with a table of commands, as pip would install it."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[qbench.commands]\n{name} = {name}:COMMANDS\n")
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(table)
    for module, text in modules.items():
        (folder / name / f"{module}.py").write_text(text)


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess:
    env = os.environ | {"PYTHONPATH": str(folder)} | variables
    return subprocess.run([sys.executable, "-m", "qbench", *words], env=env, capture_output=True, text=True)


@pytest.fixture
def games(tmp_path):
    install(tmp_path, "games", TABLE, pick=PICK, guess_size="import a_missing_package")
    return tmp_path


def test_help_has_the_group_and_the_use(games, tmp_path_factory):
    plain, more = run(tmp_path_factory.mktemp("empty"), "--help"), run(games, "--help")
    assert (more.returncode, more.stderr) == (0, "")
    added = [line for line in more.stdout.splitlines() if line not in plain.stdout.splitlines()]
    assert [line.split() for line in added] == [
        ["guess-size", "Guess", "the", "size"],
        ["Games:"],
        ["pick", "Pick", "one", "of", "the", "words"],
    ]
    order = ("  search ", "  guess-size ", "Read results:", "Kernels and this machine:", "Games:", "Shell:")
    places = [more.stdout.index(f"\n{start}") for start in order]
    assert places == sorted(places)


def test_command_of_another_package_runs(games):
    done = run(games, "pick", "a", "b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "b\n", "")
    assert run(games, "pick", "--help").stdout.startswith("Usage: qbench pick")
    near = run(games, "pikc")
    assert near.returncode == 2 and "pick" in near.stderr


def test_broken_command_is_one_line(games):
    done = run(games, "guess-size")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "qbench: games.guess_size has no command that can be loaded: No module named 'a_missing_package'\n"
    )


def test_taken_name_is_one_line_and_changes_nothing(games):
    plain = run(games, "--help").stdout
    install(games, "rivals", 'COMMANDS = {"Rivals": {"recipes": "Ours", "pick": "Ours"}}', pick=PICK, recipes=PICK)
    done = run(games, "--help")
    assert (done.returncode, done.stdout) == (0, plain)
    said = "warning: command {!r} of package rivals is left out: the name is taken"
    assert done.stderr.splitlines() == [said.format("recipes"), said.format("pick")]
    assert "rivals" not in run(games, "recipes", "--bits", "4").stderr


@pytest.mark.parametrize("table", ["raise RuntimeError('broken')", "COMMANDS = ['pick']"])
def test_broken_table_does_not_break_help(table, tmp_path):
    install(tmp_path, "broken", table)
    done = run(tmp_path, "--help")
    assert done.returncode == 0 and "quantize" in done.stdout
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("warning: the commands of package broken cannot be read from broken:COMMANDS: ")


def test_completion_names_commands_without_importing_them(games):
    bash = {"_QBENCH_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    done = run(games, COMP_WORDS="qbench g", **bash)
    assert (sorted(done.stdout.split()), done.stderr) == (["plain,gate", "plain,generate", "plain,guess-size"], "")
    assert "plain,--version" in run(games, COMP_WORDS="qbench --", **bash).stdout.split()


LOADED = """
import sys
from qbench.cli.main import main
main({arguments})
print(*(name for name in sys.modules if name.startswith("qbench.")), file=sys.stderr)
"""
OUTSIDE = tuple(f"qbench.{name}" for name in "breakeven cli.rank cli.ray kernels mla runtime search tune".split())


@pytest.mark.parametrize("arguments", [["--help"], ["recipes", "--help"]], ids=" ".join)
def test_annex_is_not_imported_without_need(arguments):
    code = LOADED.format(arguments=arguments)
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    assert "qbench.cli.annex" in loaded and not [name for name in loaded if name.startswith(OUTSIDE)]
