import subprocess

from checks.texts import prose_files, texts_of


def found(path, content):
    return [(text.line, text.text) for text in texts_of(path, content)]


def test_python_docstrings_comments_and_help_texts():
    content = '''"""Module."""

import click

X = "# not a comment"  # behind code
# one
# comment
NAME = "not prose"


@click.option("--x", help="Help "
                          "text.")
@click.option("--y", help=f"From {X} on.", default="not prose")
def f():
    """Function.

    More.
    """
    # alone

    # apart
    return "not prose"
'''
    assert sorted(found("a.py", content)) == [
        (1, "Module."),
        (5, " behind code"),
        (6, " one\n comment"),
        (11, "Help text."),
        (13, " on."),
        (13, "From "),
        (15, "Function.\n\n    More.\n    "),
        (19, " alone"),
        (21, " apart"),
    ]


def test_cpp_comments_and_no_strings():
    content = '// a\n// b\nint x = 1 / 2;  // c\nauto s = "http://d";\nchar q = \'"\';  // e\n'
    assert found("a.inl", content) == [(1, " a\n b"), (3, " c"), (5, " e")]


def test_hash_comments_and_no_shebang():
    assert found("run", "#!/bin/sh\n# a\n#b\nx: 1 # c\ny: '#d'\n") == [(2, " a\nb"), (4, " c")]


def test_markdown_without_fenced_code():
    assert found("README.md", "a\n```\nb\n```\nc\n") == [(1, "a\n\n\n\nc")]


def test_files_are_tracked_or_new_but_not_ignored_or_generated(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("*.inl\n")
    (tmp_path / "results").mkdir()
    for name in ("new.py", "tracked.md", "ignored.inl", "data.jsonl", "removed.h", "results/page.md", "Makefile"):
        (tmp_path / name).write_text("")
    subprocess.run(["git", "-C", tmp_path, "add", "tracked.md", "removed.h"], check=True)
    (tmp_path / "removed.h").unlink()
    assert prose_files(tmp_path) == ["Makefile", "new.py", "tracked.md"]
