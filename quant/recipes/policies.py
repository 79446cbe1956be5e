"""The ways of choosing a format: one for all, linears only, and ordered rules over another way."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from quant.errors import InputError
from quant.formats import get_format
from quant.methods import Method
from quant.models import ModelConfig
from quant.recipes.recipe import Policy, TensorChoice
from quant.recipes.roles import Role, place_of


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every matrix in one format."""

    format: str

    @property
    def formats(self) -> frozenset[str]:
        return frozenset({self.format})

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorChoice:
        return TensorChoice(self.format, f"preset: every matrix {self.format}")


@dataclass(frozen=True, slots=True)
class Linears:
    """The linears of the decoder layers in one format; embedding, head and routers of experts stay bf16, as in the
    field's checkpoints.
    """

    format: str

    @property
    def formats(self) -> frozenset[str]:
        return frozenset({self.format, "bf16"})

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorChoice:
        place = place_of(name)
        if place.layer is None:
            return TensorChoice("bf16", "preset: outside the decoder layers")
        if place.role is Role.ROUTER:
            return TensorChoice("bf16", "preset: router of experts")
        return TensorChoice(self.format, f"preset: decoder linear {self.format}")


@dataclass(frozen=True, slots=True)
class Default:
    """Every matrix in one format; an integer format means the decoder's linears alone, and bf16 for the rest.

    The rest is embedding, head and routers of experts.
    """

    format: str

    @property
    def formats(self) -> frozenset[str]:
        return frozenset({self.format})

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorChoice:
        place = place_of(name)
        if (place.layer is None or place.role is Role.ROUTER) and not holds_embedding(self.format):
            return TensorChoice("bf16", f"default: {self.format} is for decoder linears")
        return TensorChoice(self.format, "default")


@dataclass(frozen=True, slots=True)
class Rule:
    """Format of the tensors that a pattern matches.

    match    fnmatch pattern over canonical tensor names
    format   None: as without the rule
    method   None: the recipe's
    """

    match: str
    format: str | None = None
    method: Method | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The first rule that matches; the other policy decides fields that it leaves open, and tensors that no rule
    matches.
    """

    rules: tuple[Rule, ...]
    otherwise: Policy

    @property
    def formats(self) -> frozenset[str]:
        return self.otherwise.formats | {rule.format for rule in self.rules if rule.format is not None}

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorChoice:
        for number, rule in enumerate(self.rules, start=1):
            if fnmatchcase(name, rule.match):
                fmt = rule.format or self.otherwise.choose(name, row_size, model).format
                if place_of(name).role is Role.EMBEDDING and not holds_embedding(fmt):
                    raise InputError(f"{name}: {fmt} is for linears, got an embedding; use bf16")
                return TensorChoice(fmt, f"rule {number}: {rule.match}", rule.method)
        return self.otherwise.choose(name, row_size, model)


def holds_embedding(format_name: str) -> bool:
    """Whether rows of the format can be looked up one by one; formats for linears alone are no GGUF types or floats."""
    return get_format(format_name).gguf_type is not None
