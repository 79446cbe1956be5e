"""The committed tables of `results/` as pages."""

import re
from collections.abc import Sequence
from pathlib import Path

from qbench.report import load_records
from qbench.report.picture import COLOURS, Picture, draw, pictures_of

LINK = re.compile(r"\[([^\]\n]*)\]\((?!https?:|#)([^)]*)\)")

WIDE = "---\nhide: [toc]\n---\n\n"  # tables take the room of the list of headings
GPU_KERNELS = "gpu"  # records of gpu_kernels.measure, in a form of their own
INTRODUCTION = """# Results

`qbench report` makes each page from one folder of records in `results/`. A page begins with its commands.
The same records as a page with filters and more plots: `qbench report results/quality --html page.html`.

"""


def result_pages(folder: Path) -> dict[str, str]:
    """Path under docs/ -> content: the README of each folder as a page, its pictures, and a page that lists them."""
    files: dict[str, str] = {}
    lines = []
    for readme in sorted(folder.glob("*/README.md")):
        name, content, pictures = readme.parent.name, _page(readme), _pictures(readme.parent)
        lines.append(f"- [{content.splitlines()[0].removeprefix('# ')}]({name}.md)")
        files[f"results/{name}.md"] = WIDE + _with_pictures(content, name, pictures)
        for number, picture in enumerate(pictures, 1):
            files |= {f"results/{name}-{number}-{theme}.svg": draw(picture, theme) for theme in COLOURS}
    return {**files, "results/index.md": INTRODUCTION + "\n".join(lines) + "\n"}


def _pictures(folder: Path) -> list[Picture]:
    if folder.name == GPU_KERNELS:
        return []
    return pictures_of(load_records([folder])) if any(folder.glob("*.jsonl")) else []


def _with_pictures(content: str, name: str, pictures: Sequence[Picture]) -> str:
    """The page with its pictures in front of the first table."""
    links = "\n".join(
        f"![{picture.title}: KL divergence against {picture.x_label}]({name}-{number}-{theme}.svg#only-{theme})"
        for number, picture in enumerate(pictures, 1)
        for theme in COLOURS
    )
    start, marker, table = content.partition("<!-- qbench:")
    return f"{start}{links}\n\n{marker}{table}" if links else content


def _page(path: Path) -> str:
    """The README with its links: those to other pages of the site stay links, all others become plain text."""

    def link(match: re.Match[str]) -> str:
        if other := re.fullmatch(r"(?:\.\./)?(?:results/)?([\w-]+)/README\.md", match[2]):
            return f"[{match[1]}]({other[1]}.md)"
        if page := re.fullmatch(r"\.\./\.\./docs/(.+\.md(?:#.*)?)", match[2]):
            return f"[{match[1]}](../{page[1]})"
        return f"{match[1]} (`{match[2]}`)"

    return LINK.sub(link, path.read_text(encoding="utf-8"))
