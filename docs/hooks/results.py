"""The committed tables of `results/` as pages."""

import re
from pathlib import Path

LINK = re.compile(r"\[([^\]\n]*)\]\((?!https?:|#)([^)]*)\)")

INTRODUCTION = """# Results

`qbench report` writes each page from records of the folder `results/`. A page begins with the commands that made it.

"""


def result_pages(folder: Path) -> dict[str, str]:
    """Path under docs/ -> content: one page per folder of records that has a README, and one that lists them."""
    pages = {f"results/{path.parent.name}.md": _page(path) for path in sorted(folder.glob("*/README.md"))}
    titles = {name: content.splitlines()[0].removeprefix("# ") for name, content in pages.items()}
    lines = [f"- [{title}]({Path(name).name})" for name, title in titles.items()]
    return {**pages, "results/index.md": INTRODUCTION + "\n".join(lines) + "\n"}


def _page(path: Path) -> str:
    """The README with its links: those to other pages of results stay links, all others become plain text."""

    def link(match: re.Match[str]) -> str:
        other = re.fullmatch(r"(?:\.\./)?(?:results/)?([\w-]+)/README\.md", match[2])
        return f"[{match[1]}]({other[1]}.md)" if other else f"{match[1]} (`{match[2]}`)"

    return LINK.sub(link, path.read_text(encoding="utf-8"))
