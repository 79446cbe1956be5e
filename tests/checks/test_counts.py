"""The counts of `checks.counts` count, and a count above its limit fails."""

import ast

import pytest

from checks import counts


def test_every_count_has_a_limit():
    assert counts.COUNTS.keys() == counts.LIMITS.keys()


def test_the_tree_is_within_its_limits(capsys):
    assert counts.main() == 0
    assert "EXCEEDED" not in capsys.readouterr().out


def test_a_count_above_its_limit_fails(monkeypatch, capsys):
    monkeypatch.setattr(counts, "COUNTS", {"files": lambda: 3})
    monkeypatch.setattr(counts, "LIMITS", {"files": 2})
    assert counts.main() == 1
    assert "EXCEEDED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("isinstance(policy, Window)", 1),
        ("isinstance(policy, Window | Sinks)", 1),
        ("isinstance(policy, (Sinks, int))", 1),
        ("isinstance(window, int)", 0),
        ("issubclass(policy, Window)", 0),
    ],
)
def test_questions_for_the_class_of_a_policy_are_found(text, expected):
    assert len(list(counts.class_questions(ast.parse(text), {"Window", "Sinks"}))) == expected


def test_classes_of_policies_derive_from_the_base_class():
    assert {"CachePolicy", "Window", "SnapKV", "InfLLM"} <= counts.policy_classes()
    assert "Span" not in counts.policy_classes()
