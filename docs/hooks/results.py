"""The committed tables of `results/` as pages."""

import re
from pathlib import Path

from qbench.measure.records.record import read_files
from qbench.report import render_report
from quant.errors import InputError

LINK = re.compile(r"\[([^\]\n]*)\]\((?!https?:|#)([^)]*)\)")

WIDE = "---\nhide: [toc]\n---\n\n"  # tables take the room of the list of headings
INTRODUCTION = """# Results

`qbench report` makes each page from one folder of records in `results/`. A page begins with its commands.

"""


def result_pages(folder: Path) -> dict[str, str]:
    """Path under docs/ -> content: one page per folder with records, and one that lists them."""
    folders = sorted(
        {path.parent for path in folder.glob("*/*.jsonl")} | {p.parent for p in folder.glob("*/README.md")}
    )
    pages = {f"results/{path.name}.md": WIDE + _content(path) for path in folders}
    titles = {name: content.removeprefix(WIDE).splitlines()[0].removeprefix("# ") for name, content in pages.items()}
    lines = [f"- [{title}]({Path(name).name})" for name, title in titles.items()]
    return {**pages, "results/index.md": INTRODUCTION + "\n".join(lines) + "\n"}


def _content(folder: Path) -> str:
    """The folder's README; without one, the tables that `qbench report` prints of its records."""
    readme, name = folder / "README.md", folder.name
    if readme.exists():
        return _page(readme)
    try:
        tables = render_report([folder], "md")
    except InputError:  # records of gates have no table
        tables = f"`qbench query` reads the {sum(1 for _ in read_files([folder]))} records of this folder.\n"
    return f"# Records of {name}\n\n    qbench report results/{name}\n\n{tables}"


def _page(path: Path) -> str:
    """The README with its links: those to other pages of results stay links, all others become plain text."""

    def link(match: re.Match[str]) -> str:
        other = re.fullmatch(r"(?:\.\./)?(?:results/)?([\w-]+)/README\.md", match[2])
        return f"[{match[1]}]({other[1]}.md)" if other else f"{match[1]} (`{match[2]}`)"

    return LINK.sub(link, path.read_text(encoding="utf-8"))
