"""The ways of choosing a format: one for all, linears only, and ordered rules."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from quant.errors import InputError
from quant.formats import IntGroupFormat, get_format
from quant.models import ModelConfig
from quant.recipes.recipe import TensorPlan
from quant.recipes.roles import Role, place_of


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every matrix in one format."""

    format: str

    @property
    def formats(self) -> frozenset[str]:
        return frozenset({self.format})

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorPlan:
        return TensorPlan(self.format, f"preset: every matrix {self.format}")


@dataclass(frozen=True, slots=True)
class Linears:
    """The linears of the decoder layers in one format; embedding and head stay bf16, as in the field's checkpoints."""

    format: str

    @property
    def formats(self) -> frozenset[str]:
        return frozenset({self.format, "bf16"})

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorPlan:
        if place_of(name).layer is None:
            return TensorPlan("bf16", "preset: outside the decoder layers")
        return TensorPlan(self.format, f"preset: decoder linear {self.format}")


@dataclass(frozen=True, slots=True)
class Rule:
    """match is an fnmatch pattern over canonical tensor names."""

    match: str
    format: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The first rule that matches; else `default`, which in integer formats means decoder linears alone."""

    rules: tuple[Rule, ...]
    default: str

    @property
    def formats(self) -> frozenset[str]:
        return frozenset({self.default, *(rule.format for rule in self.rules)})

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorPlan:
        place = place_of(name)
        for number, rule in enumerate(self.rules, start=1):
            if fnmatchcase(name, rule.match):
                if place.role is Role.EMBEDDING and isinstance(get_format(rule.format), IntGroupFormat):
                    raise InputError(f"{name}: {rule.format} is for linears, got an embedding; use bf16")
                return TensorPlan(rule.format, f"rule {number}: {rule.match}")
        if place.layer is None and isinstance(get_format(self.default), IntGroupFormat):
            return TensorPlan("bf16", f"default: {self.default} is for decoder linears")
        return TensorPlan(self.default, "default")
