"""YAML that users write: one mapping, no key twice."""

from collections.abc import Collection, Hashable
from pathlib import Path
from typing import Any

import yaml

from quant.errors import InputError


class _StrictLoader(yaml.SafeLoader):
    """A key given twice is an error here, where YAML's own loader lets the last one win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.constructor.ConstructorError(problem=f"key {key!r} stands twice, again in line {line}")
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, what: str) -> Any:
    """The document of a file.

    what     names the file in errors: "recipe", "suite"
    raises   InputError for a file that cannot be read or is not YAML
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise InputError(f"{what} {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, TypeError) as error:  # TypeError: a key that is a list
        raise InputError(f"{what} {path}: not YAML ({' '.join(str(error).split())})") from error


def check_keys(what: str, data: Any, valid: Collection[str], required: Collection[str] = ()) -> None:
    """raises InputError unless `data` is a mapping with all required keys and no unknown one"""
    if not isinstance(data, dict):
        raise InputError(f"{what} must be a mapping of {', '.join(valid)}, got {type(data).__name__}")
    unknown = [str(key) for key in data if key not in valid]
    if unknown:
        raise InputError(f"{what} has unknown keys {', '.join(unknown)}; valid are {', '.join(valid)}")
    missing = [key for key in required if key not in data]
    if missing:
        raise InputError(f"{what} lacks {', '.join(missing)}")
