"""Help of every command: sections that fit a screen, and examples that the command would take."""

import shlex

import click
import pytest

from qbench.cli.help import MOST_OF_A_SECTION, SHARED, Command, long_name
from qbench.cli.main import COMMANDS, cli


def command_named(name: str) -> tuple[Command, click.Context]:
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, Command)
    return command, click.Context(command, info_name=name)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_fits_and_each_option_is_in_one(name):
    command, ctx = command_named(name)
    found = command.options(ctx)
    assert all(len(options) <= MOST_OF_A_SECTION for options in found.values())
    options = [one for one in command.get_params(ctx) if isinstance(one, click.Option)]
    assert sorted(map(id, options)) == sorted(id(one) for part in found.values() for one in part)
    printed = command.get_help(ctx)
    assert all(f"\n{title}:\n" in printed for title in (*found, "Examples"))


def test_sections_name_options_that_exist():
    names = {name: {long_name(one) for one in command_named(name)[0].params if one.opts} for name in COMMANDS}
    for command in COMMANDS:
        parts = command_named(command)[0].sections
        assert {name for part in parts.values() for name in part} <= names[command]
    assert {name for part in SHARED.values() for name in part} <= set().union(*names.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_taken(name, monkeypatch):
    monkeypatch.setattr("qbench.cli.keep_path.require_clean_tree", lambda path: None)
    command, _ = command_named(name)
    assert len(command.examples) == 2
    for line in command.examples:
        program, first, *words = shlex.split(line)
        assert (program, first) == ("qbench", name)
        try:
            command.make_context(name, words)
        except click.exceptions.Exit as done:  # of an option that prints a list
            assert done.exit_code == 0
