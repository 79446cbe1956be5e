"""Generated pages match the registries, and the navigation has every page once."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path, PurePath

import click
import pytest

from docs.hooks.navigation import SECTIONS, navigation
from docs.hooks.reference import generated_pages
from docs.hooks.results import WIDE, result_pages
from docs.hooks.short_code import mark_short_code
from docs.hooks.suite_keys import AXIS_KEYS, SECTION_KEYS, SUITE_KEYS
from qbench.cli.main import COMMANDS, cli
from qbench.policies.registry import policy_names
from qbench.sweeps.suite.load_suite import SECTIONS as SUITE_SECTIONS
from qbench.sweeps.suite.suite import Suite
from quant.formats import FORMATS
from quant.kv import KV_FORMATS
from quant.models.architectures import ARCHITECTURES
from quant.recipes import RECIPES

ROOT = Path(__file__).parents[2]


def test_readme_has_the_registries():
    """All rows apart from the instruction sets, which the compiler decides; other tests register policies here."""
    command = [sys.executable, "-c", "from docs.hooks.supported import supported; print(supported())"]
    table = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = [row for row in table.splitlines() if not row.startswith("| instruction sets")]
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row not in readme] == []


def test_keys_of_suites_match_the_parser():
    assert {*SUITE_KEYS} - {"models", "recipes"} == {field.name for field in fields(Suite)} - {"axes"}
    assert all(AXIS_KEYS.values())
    assert {name: set(keys) for name, keys in SECTION_KEYS.items()} == {
        name: set(kind.in_suites) for name, kind in SUITE_SECTIONS.items()
    }


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("reference/recipes.md", RECIPES),
        ("reference/formats.md", FORMATS),
        ("reference/kv-formats.md", KV_FORMATS),
        ("reference/policies.md", policy_names()),
        ("reference/commands.md", [f"qbench {name}" for name in COMMANDS]),
    ],
)
def test_registries_are_listed(page, names):
    content = generated_pages()[page]
    assert all(f"`{name}" in content for name in names)


def test_every_page_is_in_the_navigation_once():
    pages = ["index.md", "own.md", "results/a.md", "results/index.md", "reference/commands/bench.md", "picture.svg"]
    shown = [page for section in navigation(pages) for entries in section.values() for page in _flat(entries)]
    assert sorted(shown) == sorted(pages[:-1])
    assert shown.index("results/index.md") < shown.index("results/a.md")


def _flat(entries):
    for entry in entries:
        yield from [entry] if isinstance(entry, str) else (page for pages in entry.values() for page in pages)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_on_the_page_of_its_command(name):
    command = cli.get_command(click.Context(cli), name)
    page = generated_pages()[f"reference/commands/{name}.md"]
    assert all(option in page for one in command.params if isinstance(one, click.Option) for option in one.opts)
    assert "Sentinel" not in page


def test_no_page_is_listed_twice():
    listed = [page for _, pages in SECTIONS for page in pages]
    assert len(listed) == len(set(listed))


def test_links_between_pages_of_the_site_stay_links(tmp_path):
    links = "[b](../b/README.md) [page](../../docs/serve.md#limits) [code](../../qbench/x.py)"
    for name, text in {"a": f"# A\n{links}\n", "b": "# B\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(text)
    pages = result_pages(tmp_path)
    assert pages["results/a.md"] == WIDE + "# A\n[b](b.md) [page](../serve.md#limits) code (`../../qbench/x.py`)\n"
    assert "- [A](a.md)\n- [B](b.md)" in pages["results/index.md"]


def test_every_folder_of_records_has_a_page():
    pages = result_pages(ROOT / "results")
    folders = {path.parent.name for path in (ROOT / "results").glob("*/*.jsonl")}
    assert folders and {f"results/{name}.md" for name in folders} <= set(pages)
    page = pages["results/quickstart.md"]
    assert "| recipe" in page and page.index("quickstart-1-light.svg#only-light") < page.index("| recipe")
    pictures = [name for name in pages if name.endswith(".svg")]
    assert {"results/quickstart-1-dark.svg", "results/long-context-1-light.svg"} <= set(pictures)
    assert all(PurePath(name).name in "".join(pages.values()) for name in pictures)


def test_readme_is_short_and_names_only_supported_things():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    rows = dict(re.findall(r"^\| ([\w ]+) \| (.+) \|$", text, re.MULTILINE))
    for row, known in {
        "KV formats": KV_FORMATS,
        "cache policies": policy_names(),
        "model families": ARCHITECTURES,
    }.items():
        assert set(rows[row].split(", ")) <= set(known), row
    assert f"{len(RECIPES)} recipes" in rows


def test_links_of_readme_and_project_files_exist():
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / name).read_text(encoding="utf-8")):
            planned = any(target == f"docs/{page}" for _, pages in SECTIONS for page in pages)
            assert planned or (ROOT / target).exists(), f"{name}: {target}"


def test_messages_of_troubleshooting_are_in_the_code():
    paths = (path for top in ("qbench", "quant", "cpu_kernels") for path in (ROOT / top).rglob("*.*"))
    code = "".join(path.read_text(encoding="utf-8") for path in paths if path.suffix in (".py", ".cpp", ".h"))
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)`(?: \.\.\.)? \|", page, re.MULTILINE)
    assert len(messages) > 8
    assert [message for message in messages if message not in code] == []


def test_every_page_has_a_link_in_the_text_of_another_page():
    """The side bar does not count: a reader follows the text."""
    pages = {path: path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
    linked = {
        (page.parent / target).resolve()
        for page, text in pages.items()
        for target in re.findall(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)", text)
        if (page.parent / target).resolve() != page
    }
    start = ROOT / "docs" / "index.md"
    assert len(pages) > 20
    assert sorted(str(page.relative_to(ROOT)) for page in set(pages) - linked - {start}) == []


def test_short_code_stays_on_one_line():
    long = "<code>infllm:budget=6400,init=128,local=4096</code>"
    assert mark_short_code(f"<td><code>--kv-ram</code></td>{long}") == (
        f'<td><code class="short">--kv-ram</code></td>{long}'
    )
