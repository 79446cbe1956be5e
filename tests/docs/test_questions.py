"""Each answer of docs/contribute/questions.md is at most two links away from the start page."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
QUESTIONS = DOCS / "contribute" / "questions.md"
LINK = re.compile(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)")
ROW = re.compile(r"^\| (?P<question>[^|]+) \| \[[^]]+\]\((?P<page>[^)]+)\) \| (?P<words>[^|]+) \|$", re.MULTILINE)
CLICKS = 2


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def clicks_from(start: Path) -> dict[Path, int]:
    """Page -> the smallest number of links from the start page; links of the side bar do not count."""
    found, front = {start: 0}, [start]
    while front:
        page = front.pop(0)
        targets = ((page.parent / name).resolve() for name in LINK.findall(read(page)))
        for target in targets:
            if target.exists() and target not in found:
                found[target] = found[page] + 1
                front.append(target)
    return found


@pytest.mark.parametrize("row", list(ROW.finditer(read(QUESTIONS))), ids=lambda row: row["question"])
def test_an_answer_is_near_and_there(row):
    page = (QUESTIONS.parent / row["page"]).resolve()
    assert clicks_from(DOCS / "index.md").get(page, CLICKS + 1) <= CLICKS
    assert row["words"] in read(page)


def test_there_are_ten_questions():
    assert len(ROW.findall(read(QUESTIONS))) == 10
