"""Caches differ by data: storage, places, view and policy. A class for a combination of them would be one too many."""

import ast
from collections.abc import Iterator
from pathlib import Path

import qbench

ROOT = "Sequences"
MOST = 10  # classes with ROOT and the contracts between it and a cache


def bases_of(text: str) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            yield node.name, [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def family(classes: dict[str, list[str]]) -> set[str]:
    """ROOT and all its descendants."""
    found, before = {ROOT}, 0
    while len(found) > before:
        before = len(found)
        found |= {name for name, bases in classes.items() if found & set(bases)}
    return found


def test_there_are_few_classes_of_caches():
    texts = (path.read_text() for path in Path(qbench.__file__).parent.rglob("*.py"))
    names = family(dict(pair for text in texts for pair in bases_of(text)))
    assert {"Cache", "KVCache", "DeviceCache"} <= names, "the search finds no caches"
    assert len(names) <= MOST, sorted(names)


def test_a_class_is_found_through_generic_and_qualified_bases():
    text = "class Cache(sequences.Sequences): ...\nclass Paged(Cache[int], Other): ...\nclass Storage(Other): ..."
    assert family(dict(bases_of(text))) == {ROOT, "Cache", "Paged"}
