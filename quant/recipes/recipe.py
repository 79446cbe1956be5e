"""Recipe: the format of each tensor of a model, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import gcd
from typing import Any, Protocol

from quant.errors import InputError
from quant.formats import ActivationFormat, IntGroupFormat, W4A4Format, get_format
from quant.formats.base import rows_of
from quant.kv import get_kv_format
from quant.methods import Method, make_method
from quant.models import POSITIONS, ModelConfig, expected_tensors
from quant.models.online import DOWN_PROJ, KEYS
from quant.models.stored import SHIFTED
from quant.recipes.containers import CONTAINERS, GROUP_SIZES, PACKINGS, fit_row
from quant.source import Source


@dataclass(frozen=True, slots=True)
class TensorChoice:
    """The format a tensor is given, and the rule that gave it, for `qbench quantize --dry-run`.

    method       of this tensor alone, with its own options; None: the recipe's
    in_place_of  the format that the rule gave, where a row of the tensor is not a multiple of its blocks
    """

    format: str
    reason: str
    method: Method | None = None
    in_place_of: str | None = None


class Policy(Protocol):
    """Chooses a format for every tensor of two or more dimensions."""

    @property
    def formats(self) -> frozenset[str]:
        """Every format this policy may choose."""
        ...

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorChoice: ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """Formats of a model's tensors, and the method that makes them.

    container   "gguf" or "hf"
    method      name in quant.methods; options are that method's own
    packing     how an hf directory names and lays out its quantized parts: a row of containers.PACKINGS
    kv          KV format, a name in quant.kv; None: the runtime's own
    rotated     whether the model is rotated before the method sees it
    learned     whether its bases are learned from the calibration text; otherwise they are Hadamard matrices
    must_match  fnmatch patterns that each have to match a matrix of the model
    source      the YAML document that the recipe was read from; None for a named one
    raises      InputError if the container cannot hold a format of the policy, or the method refuses an option
    """

    name: str
    container: str
    method: str
    policy: Policy
    options: Mapping[str, Any] = field(default_factory=dict)
    packing: str = "compressed-tensors"
    kv: str | None = None
    rotated: bool = False
    learned: bool = False
    must_match: tuple[str, ...] = ()
    source: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.make_method()
        if self.packing not in PACKINGS:
            raise InputError(f"recipe {self.name}: packing {self.packing!r}, expected one of {', '.join(PACKINGS)}")
        if self.learned and not any(map(_rounds_inputs, self.policy.formats)):
            raise InputError(
                f"recipe {self.name}: spin- learns from rounded inputs, and {', '.join(sorted(self.policy.formats))} "
                "rounds none by their own values; use rot-"
            )
        container = CONTAINERS[self.container]
        for name in sorted(self.policy.formats):
            if not get_format(name).writes:
                raise InputError(f"recipe {self.name}: {name} is read but not written here; choose another format")
            if not container.holds(get_format(name)):
                raise InputError(f"recipe {self.name}: a {self.container} artifact cannot hold {name}")

    @property
    def online(self) -> tuple[str, ...]:
        """Rotations that run with the model: those of 4-bit inputs, and with a KV format those of keys."""
        if not self.rotated or not any(isinstance(get_format(name), W4A4Format) for name in self.policy.formats):
            return ()
        return (DOWN_PROJ,) if self.kv is None else (DOWN_PROJ, KEYS)

    def make_method(self) -> Method:
        return make_method(self.method, self.options)

    def with_options(self, **options: Any) -> "Recipe":
        """This recipe with these options of its method set.

        raises   InputError for an option that the method does not have
        """
        return replace(self, options={**self.options, **options})

    def in_container(self, container: str) -> "Recipe":
        """This recipe for an artifact of the other kind.

        raises   InputError where its formats do not exist there
        """
        return replace(self, container=container)

    def choose(self, source: Source) -> dict[str, TensorChoice]:
        """Canonical name -> TensorChoice, in the order of source.tensors.

        raises   InputError for a row that its format cannot hold and the container has no fallback for, for a
                 pattern that matches nothing, for heads that the KV format cannot hold, and where rows of no matrix
                 fit, so that all would stay in floats
        """
        model = ModelConfig.of(source)
        if self.kv is not None:
            get_kv_format(self.kv).check(model.head_dim)
        self._check_patterns(source)
        expected = expected_tensors(model)
        choices = {
            name: self._choose_one(name, source, model)
            if not expected[name].stored.offset
            else TensorChoice(SHIFTED, f"vector: a difference in the checkpoint, exact in {SHIFTED}")
            for name, info in source.tensors.items()
        }
        matrices = [choices[name] for name, info in source.tensors.items() if len(info.shape) > 1 and name != POSITIONS]
        last = CONTAINERS[self.container].last_resort
        if matrices and all(row.in_place_of is not None and row.format == last for row in matrices):
            raise InputError(f"recipe {self.name}: rows of {source.spec} fit no block of it; all would stay in {last}")
        return choices

    def _check_patterns(self, source: Source) -> None:
        matrices = [name for name, info in source.tensors.items() if len(info.shape) > 1]
        for number, pattern in enumerate(self.must_match, start=1):
            if not any(fnmatchcase(name, pattern) for name in matrices):
                raise InputError(
                    f"recipe {self.name}: rule {number} matches no matrix of {source.spec} ({pattern!r}); "
                    f"names are like {matrices[-1]}"
                )

    def _choose_one(self, name: str, source: Source, model: ModelConfig) -> TensorChoice:
        shape = source.tensors[name].shape
        if len(shape) == 1 or name == POSITIONS:  # which llama.cpp leaves alone, too
            vectors = CONTAINERS[self.container].vectors
            return TensorChoice(vectors, f"vector: {vectors} in {self.container}")
        row_size = rows_of(shape)[1]
        chosen = self.policy.choose(name, row_size, model)
        try:
            format_name = fit_row(name, chosen.format, row_size, self.container)
        except InputError as error:
            raise InputError(f"{error}{self._with_smaller_groups(chosen.format, source, model)}") from error
        if format_name == chosen.format:
            return chosen
        block_size = get_format(chosen.format).block_size
        reason = f"fallback: row {row_size} is not a multiple of {block_size} ({chosen.format})"
        return replace(chosen, format=format_name, reason=reason, in_place_of=chosen.format)

    def _with_smaller_groups(self, format_name: str, source: Source, model: ModelConfig) -> str:
        """The end of a message: the named recipe with the largest groups that divide all rows of this format."""
        fmt = get_format(format_name)
        if not isinstance(fmt, IntGroupFormat) or self.source is not None:
            return ""
        rows = {name: rows_of(info.shape)[1] for name, info in source.tensors.items() if len(info.shape) > 1}
        shared = gcd(*(row for name, row in rows.items() if self.policy.choose(name, row, model).format == format_name))
        fitting = [size for size in GROUP_SIZES if shared % size == 0]
        return f", or use the recipe {self.name.replace(f'g{fmt.group_size}', f'g{fitting[0]}')}" if fitting else ""


def _rounds_inputs(format_name: str) -> bool:
    fmt = get_format(format_name)
    return isinstance(fmt, ActivationFormat) and fmt.has_input_scale
