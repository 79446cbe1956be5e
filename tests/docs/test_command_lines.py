"""Every command line of README and the documentation is one that the commands take; those marked <!-- run --> run."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from qbench.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = "<!-- run -->"


@dataclass(frozen=True, slots=True)
class Line:
    """A command line of a page.

    runs     whether its block is marked as runnable
    is_span  whether it is part of a sentence, which may name an option without its value
    """

    page: str
    number: int
    text: str
    runs: bool = False
    is_span: bool = False

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    def __str__(self) -> str:
        return f"{self.page}:{self.number}"


def lines_of(name: str, content: str) -> list[Line]:
    """The lines that begin with `qbench`, perhaps after variables, in fenced and indented code and in code spans."""
    found, in_fence, runs, marked = [], False, False, False
    for number, raw in enumerate(content.splitlines(), start=1):
        text = raw.strip()
        if text.startswith("```"):
            in_fence = not in_fence
            runs = in_fence and marked
        elif (in_fence or raw.startswith("    ")) and re.match(r"(\w+=\S+ )*qbench ", text):
            command = re.sub(r"^(\w+=\S+ )*qbench ", "", text)
            found.append(Line(name, number, command, runs))
        elif not in_fence:
            spans = re.findall(r"`qbench ([^`]+)`", raw)
            found += [Line(name, number, span, is_span=True) for span in spans if " -" in f" {span}"]
        marked = text == RUN or (marked and not text)
    return found


LINES = [line for page in PAGES for line in lines_of(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))]


def check(line: Line) -> None:
    """raises click.UsageError if the command, an option or a value does not exist"""
    name, *arguments = line.words
    if name.startswith("-"):
        return
    if name not in COMMANDS:
        raise click.UsageError(f"no command {name!r}")
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    if "|" in arguments or ">" in arguments:
        arguments = arguments[: min(arguments.index(sign) for sign in "|>" if sign in arguments)]
    shown = ["MODEL", *(word for word in arguments)] if all(word.startswith("-") for word in arguments) else arguments
    try:
        command.make_context(name, list(arguments))
    except click.exceptions.Exit:  # an option that prints and ends, such as --list
        return
    except click.BadOptionUsage:
        if not line.is_span:
            raise
    except click.MissingParameter:
        if not line.is_span:
            raise
        command.make_context(name, shown, resilient_parsing=True)


@pytest.mark.parametrize("line", LINES, ids=str)
def test_command_line_is_taken(line):
    check(line)


@pytest.mark.parametrize("text", ["benhc ref:llama", "bench ref:llama --nope 3", "bench ref:llama -p many"])
def test_the_check_can_fail(text):
    (line,) = lines_of("page", f"    qbench {text}\n")
    with pytest.raises(click.UsageError):
        check(line)


def test_marked_blocks_are_found():
    page = f"{RUN}\n```sh\nqbench info\n```\n\n```sh\nQBENCH_ISA=avx2 qbench info  # again\n```\n`qbench eval --nope`\n"
    found = lines_of("page", page)
    assert [(line.words, line.runs) for line in found] == [
        (["info"], True),
        (["info"], False),
        (["eval", "--nope"], False),
    ]


def runnable() -> dict[str, list[Line]]:
    pages: dict[str, list[Line]] = {}
    for line in LINES:
        if line.runs:
            pages.setdefault(line.page, []).append(line)
    return pages


@pytest.mark.exhaustive("models are quantized, measured and asked for text")
@pytest.mark.parametrize("page", runnable())
def test_marked_command_lines_run(page, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line in runnable()[page]:
        status, printed = run(*line.words)
        assert status == 0, f"{line}: {printed}"
