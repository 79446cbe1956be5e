"""YAML that users write: one mapping, no key twice."""

from collections.abc import Collection, Hashable
from pathlib import Path
from typing import Any

import yaml

from quant.errors import InputError
from quant.regular_file import read_regular_text

MOST_BYTES = 16 << 20
# An alias of an alias of an alias is a small file and a huge document. Every suite here has below 2,000 values.
MOST_VALUES = 100_000


class _StrictLoader(yaml.SafeLoader):
    """A key given twice is an error here, where YAML's own loader lets the last one win in silence."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _num_values(node, {}) > MOST_VALUES:
            raise yaml.constructor.ConstructorError(problem=f"more than {MOST_VALUES} values, with aliases followed")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.constructor.ConstructorError(problem=f"key {key!r} stands twice, again in line {line}")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """A number that 64 bits hold; `0x` and `1:30:00` make one of any length in a line."""
        number = super().construct_yaml_int(node)
        if not -(2**63) <= number < 2**63:
            line = node.start_mark.line + 1
            raise yaml.constructor.ConstructorError(problem=f"a number of more than 64 bits in line {line}")
        return number


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)


def read_yaml(path: Path, what: str) -> Any:
    """The document of a file.

    `what`   names the file in errors: "recipe", "suite"
    raises   InputError for a file that cannot be read or is not YAML
    """
    try:
        return yaml.load(read_regular_text(path, MOST_BYTES), Loader=_StrictLoader)
    except OSError as error:
        raise InputError(f"{what} {path}: {error.strerror or error}") from error
    # TypeError: a key that is a list; ValueError: a scalar such as 2024-13-45 or 0x_; RecursionError: 3,000 brackets;
    # AttributeError, KeyError and IndexError: a scalar that is no `!!int`, `!!bool` or the like, but has the tag
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, AttributeError, LookupError) as error:
        raise InputError(f"{what} {path}: not YAML ({' '.join(str(error).split())})") from error


def _num_values(node: yaml.Node, known: dict[yaml.Node, float]) -> float:
    """Values in the document below the node, those behind an alias once for each alias; inf if it holds itself."""
    if node not in known:
        known[node] = float("inf")
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        below = node.value if isinstance(node, yaml.SequenceNode) else [one for pair in pairs for one in pair]
        known[node] = 1 + sum(_num_values(each, known) for each in below)
    return known[node]


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
