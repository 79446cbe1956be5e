import json
import subprocess

import pytest

from checks.patterns import HABITS
from checks.prose import BUDGET, SHOWN, main, places_in


@pytest.fixture
def repository(tmp_path):
    """A committed repository of one file with two hard places in line 3 and 4, and their budget."""
    write(tmp_path, "a.md", "Plain.\n\nOf the text.\nOf the rest.\n")
    write_budget(tmp_path, {"of-sentence": 2})
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    commit(tmp_path)
    return tmp_path


def write(root, name, content):
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(content)


def write_budget(root, some):
    write(root, BUDGET, json.dumps(dict.fromkeys(HABITS, 0) | some))


def read_budget(root):
    return json.loads((root / BUDGET).read_text())


def commit(root):
    subprocess.run(["git", "-C", root, "add", "-A"], check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", root, *author, "commit", "-qm", "a: b"], check=True)


def test_a_match_over_two_lines_is_placed_at_its_beginning():
    (place,) = places_in("a.py", "# One\n# line, what\n# is stored\n")
    assert (place.pattern, place.path, place.line) == ("what-as-noun", "a.py", 2)
    assert "what is stored" in place.excerpt


def test_an_old_word_in_the_name_of_a_test_fails(repository, capsys):
    write(repository, "tests/test_a.py", "import pytest\n\n\n@pytest.mark.slow\ndef test_empty():\n    pass\n")
    assert main([], repository) == 1
    assert "test-name: 1 places, budget 0" in (out := capsys.readouterr().out) and "tests/test_a.py:5: empty" in out


def test_only_names_of_tests_are_looked_at():
    content = "def empty(): ...\nclass A:\n    async def test_b(self): ...\n"
    assert [(place.line, place.excerpt) for place in places_in("tests/test_a.py", content)] == [(3, "b")]
    assert places_in("qbench/test_a.py", content) == []


def test_at_the_budget_it_passes(repository, capsys):
    assert main([], repository) == 0
    assert "of-sentence 2/2" in capsys.readouterr().out


def test_over_the_budget_it_fails_and_shows_only_the_changed_line(repository, capsys):
    write(repository, "a.md", "Plain.\nOf all.\nOf the text.\nOf the rest.\n")
    assert main([], repository) == 1
    out = capsys.readouterr().out
    assert "of-sentence: 3 places, budget 2" in out
    assert "a.md:2: " in out and "a.md:3" not in out and "a.md:4" not in out


def test_over_the_budget_in_a_commit_already_it_shows_all_places(repository, capsys):
    write(repository, "a.md", "Of a.\n" * (SHOWN + 3))
    commit(repository)
    assert main([], repository) == 1
    out = capsys.readouterr().out
    assert out.count("a.md:") == SHOWN and "... and 3 more" in out
    assert main(["--list", "of-sentence"], repository) == 0
    assert capsys.readouterr().out.count("a.md:") == SHOWN + 3


def test_below_the_budget_it_passes_and_asks_to_lower_it(repository, capsys):
    write(repository, "a.md", "Plain.\nOf the rest.\n")
    assert main([], repository) == 0
    assert "of-sentence 1 < 2" in capsys.readouterr().out
    assert main(["--lower"], repository) == 0
    assert read_budget(repository)["of-sentence"] == 1
    assert "below budget" not in capsys.readouterr().out


def test_lowering_never_raises(repository):
    write(repository, "a.md", "Of a.\nOf b.\nOf c.\n")
    assert main(["--lower"], repository) == 1
    assert read_budget(repository)["of-sentence"] == 2


def test_a_raised_budget_fails(repository, capsys):
    write_budget(repository, {"of-sentence": 5})
    assert main([], repository) == 1
    assert "raised from 2 to 5" in capsys.readouterr().out


def test_a_raised_budget_fails_against_an_older_revision_too(repository, capsys):
    write_budget(repository, {"of-sentence": 5})
    commit(repository)
    assert main(["--since", "HEAD^1"], repository) == 1
    assert "raised from 2 to 5" in capsys.readouterr().out


def test_a_pattern_without_budget_fails(repository, capsys):
    write(repository, BUDGET, "{}")
    assert main([], repository) == 1
    assert "expected" in capsys.readouterr().err


def test_a_revision_that_git_does_not_know_is_no_error(repository):
    assert main(["--since", "no-such"], repository) == 0
