"""Tables of input that is refused: YAML files next to the tests, with rows [name, input, parts of the message]."""

from pathlib import Path
from typing import Any

import pytest
import yaml


def refused_rows(test: str, table: str) -> list[Any]:
    """The rows of a table in the folder of `test`, a file, as parameters (input, says); names are distinct."""
    rows = yaml.safe_load((Path(test).parent / table).read_text(encoding="utf-8"))
    names = [name for name, *_ in rows]
    assert len(set(names)) == len(names), f"{table}: a name stands twice"
    return [pytest.param(given, says, id=name) for name, given, says in rows]
