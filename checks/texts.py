"""The English of a repository: docstrings, comments, help texts, Markdown and names of tests, each with its line."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

C_LIKE = {".cpp", ".h", ".in", ".inl", ".js"}
HASH_COMMENTS = {".yaml", ".yml", ".toml"}
HASH_NAMES = {"Makefile", "CMakeLists.txt", "run", ".clang-format"}  # `run` is .ci/run
GENERATED = ("results/",)  # written by qbench

HASH_LINE = re.compile(r"^(?P<code>[^#\"']*?)#(?!!)(?P<text>.*)$")
SLASH_LINE = re.compile(r"^(?P<code>(?:[^\"'/]|/(?!/)|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')*)//(?P<text>.*)$")
FENCE = re.compile(r"^\s*```")


@dataclass(frozen=True, slots=True)
class Text:
    """One piece of English. `text` keeps its line breaks, so a position in it gives a line of the file."""

    path: str
    line: int  # of the first character, from 1
    text: str


def prose_files(root: Path) -> list[str]:
    """Files that can hold prose, relative to `root`: tracked ones, and new ones that git does not ignore."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(name for name in names if _has_prose(Path(name)) and (root / name).is_file())


def _has_prose(path: Path) -> bool:
    known = path.suffix in {".py", ".md"} | C_LIKE | HASH_COMMENTS or path.name in HASH_NAMES
    return known and not path.as_posix().startswith(GENERATED)


def texts_of(path: str, content: str) -> Iterator[Text]:
    """The English in one file of `prose_files`."""
    suffix = Path(path).suffix
    if suffix == ".py":
        yield from _python(path, content)
    elif suffix in C_LIKE:
        yield from _comments(path, content, SLASH_LINE)
    elif suffix == ".md":
        yield from _markdown(path, content)
    else:
        yield from _comments(path, content, HASH_LINE)


def names_of_tests(path: str, content: str) -> Iterator[Text]:
    """Names of the tests in one file of `prose_files`, as words, without the first."""
    if path.startswith("tests/") and path.endswith(".py"):
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield Text(path, node.lineno, node.name.removeprefix("test_").replace("_", " "))


def _python(path: str, content: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield from _literal(path, first.value)
        elif isinstance(node, ast.keyword) and node.arg in ("help", "epilog", "short_help"):
            parts = node.value.values if isinstance(node.value, ast.JoinedStr) else [node.value]
            for part in parts:
                yield from _literal(path, part)
    if "#" in content:
        tokens = tokenize.generate_tokens(io.StringIO(content).readline)
        lines = [
            (t.start[0], t.string[1:], not t.line[: t.start[1]].strip()) for t in tokens if t.type == tokenize.COMMENT
        ]
        yield from _joined(path, lines)


def _literal(path: str, node: ast.AST) -> Iterator[Text]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield Text(path, node.lineno, node.value)


def _comments(path: str, content: str, pattern: re.Pattern[str]) -> Iterator[Text]:
    matches = ((number, pattern.match(line)) for number, line in enumerate(content.splitlines(), 1))
    yield from _joined(path, [(n, match["text"], not match["code"].strip()) for n, match in matches if match])


def _joined(path: str, lines: list[tuple[int, str, bool]]) -> Iterator[Text]:
    """Comments on consecutive lines of their own are one text; a comment behind code is a text by itself.

    lines   (line number, text, whether the line holds nothing else)
    """
    block: list[tuple[int, str]] = []
    for number, text, alone in lines:
        if block and not (alone and number == block[-1][0] + 1):
            yield Text(path, block[0][0], "\n".join(line for _, line in block))
            block = []
        if alone:
            block.append((number, text))
        else:
            yield Text(path, number, text)
    if block:
        yield Text(path, block[0][0], "\n".join(line for _, line in block))


def _markdown(path: str, content: str) -> Iterator[Text]:
    """The whole file as one text, with fenced code blanked."""
    kept, in_fence = [], False
    for line in content.splitlines():
        if FENCE.match(line):
            in_fence = not in_fence
            kept.append("")
        else:
            kept.append("" if in_fence else line)
    yield Text(path, 1, "\n".join(kept))
