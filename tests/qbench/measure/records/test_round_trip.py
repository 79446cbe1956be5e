"""Every record in results/ becomes data classes in today's words and the same JSON again, with the key that it had."""

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from qbench.measure.records.migrate import migrate
from qbench.measure.records.record import Record, case_key

RESULTS = Path(__file__).parents[4] / "results"
# Rows of results/gpu have a form of their own: gpu_kernels.proof.record.
FILES = sorted(path for path in RESULTS.rglob("*.jsonl") if path.parent.name != "gpu")


OLD_WORDS = {"kv", "products", "ceilings", "ceilings_seconds", "cache_kind", "pass_tokens"}


def documents(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def canonical(document: Any) -> str:
    """Distinguishes 1 and 1.0, as equality does not."""
    return json.dumps(document, sort_keys=True)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_every_kept_record_comes_back_as_it_was(file):
    for document in documents(file):
        record = Record.from_json(migrate(document))
        assert canonical(record.to_json()) == canonical(migrate(document))
        assert case_key(record.case) == document["key"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_no_kept_record_has_an_old_word(file):
    for document in documents(file):
        new = migrate(document)
        for part in (new["case"], new["metrics"] or {}):
            assert not OLD_WORDS & part.keys()
        assert (new["key"], new["time"], new["machine"]) == (document["key"], document["time"], document["machine"])


def unknown_keys(value: Any) -> set[str]:
    """Keys that no field is for, in the value and all that it holds."""
    found = {f"{type(value).__name__}.{key}" for key, _ in getattr(value, "rest", ())}
    if is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value) if field.name != "rest"]
    elif isinstance(value, dict):
        parts = list(value.values())
    else:
        parts = list(value) if isinstance(value, (list, tuple)) else []
    return found.union(*map(unknown_keys, parts))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_rows_have_a_field_for_every_key(file):
    rows = [Record.from_json(migrate(document)) for document in documents(file)]
    assert set().union(*map(unknown_keys, rows)) == set()
