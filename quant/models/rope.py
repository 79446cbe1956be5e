"""RoPE of a config: its numbers in one spelling, and the effect of scaling on each frequency."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Required, TypedDict, cast

import numpy as np

from quant.errors import InputError, shown
from quant.models import yarn
from quant.models.values import count, number

DEFAULT_THETA = 10000.0  # of the RoPE paper, if a config does not name one
ORIGINAL_CONTEXT = "original_max_position_embeddings"
TRAINED_CONTEXT = "max_position_embeddings"
LONGROPE = "longrope"
LAYER_TYPES = ("full_attention", "sliding_attention")


class RopeScaling(TypedDict, total=False):
    """The `rope_scaling` of a config.json; which of the parameters there are depends on the type."""

    rope_type: Required[str]
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    mscale: float
    mscale_all_dim: float
    attention_factor: float
    short_factor: list[float]
    long_factor: list[float]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: base wavelength and how positions past the trained context are scaled.

    Parameters that `rope_type` does not take keep their defaults.
    """

    rope_type: str = "default"  # a key of ROPE_TYPES
    theta: float = DEFAULT_THETA
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    rotated_share: float = 1.0  # of each head's entries, the first ones
    short_factor: tuple[float, ...] = ()  # of each pair, longrope's divisor up to the original context
    long_factor: tuple[float, ...] = ()  # and past it

    def __post_init__(self) -> None:
        for name in ("theta", "factor", "low_freq_factor", ORIGINAL_CONTEXT):
            if not getattr(self, name) > 0:
                raise InputError(f"rope {name} is {getattr(self, name)}, expected a number above 0")
        if not self.high_freq_factor > self.low_freq_factor:
            raise InputError(
                f"rope high_freq_factor is {self.high_freq_factor}, expected more than low_freq_factor "
                f"{self.low_freq_factor}"
            )
        if not self.beta_fast > self.beta_slow:
            raise InputError(f"rope beta_fast is {self.beta_fast}, expected more than beta_slow {self.beta_slow}")
        if self.rope_type == "yarn" and not self.theta > 1:
            raise InputError(f"rope theta is {self.theta}, expected more than 1 for yarn")

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> "RopeConfig":
        """`rope_parameters` holds theta too; the older `rope_scaling` leaves it to the top-level `rope_theta`.

        raises   InputError for an unknown rope_type, or a missing or impossible number
        """
        return cls._from_given(_given(config, "full_attention"), config, "rope_theta", DEFAULT_THETA)

    @classmethod
    def local_from_hf(cls, config: Mapping[str, Any], theta: float | None) -> "RopeConfig | None":
        """RoPE of the layers with a window, if they have one of their own; theta: its base if the config does not name
        one.

        Older configs have a key for its base alone, and their scaling is not for these layers.
        """
        if theta is None:
            return None
        given = _given(config, "sliding_attention") if _by_layer_type(config) else {}
        return cls._from_given(given, config, "rope_local_base_freq", theta)

    @classmethod
    def _from_given(
        cls, given: Mapping[str, Any], config: Mapping[str, Any], theta_key: str, default_theta: float
    ) -> "RopeConfig":
        if given.get("rope_theta") is not None:
            theta = number(given, "rope_theta")
        else:
            theta = number(config, theta_key, default_theta)
        rope_type = given.get("rope_type", given.get("type", "default"))
        if not isinstance(rope_type, str) or rope_type not in ROPE_TYPES:
            raise InputError(f"rope_type {shown(rope_type)} is not supported; known: {', '.join(ROPE_TYPES)}")
        share = number(given if "partial_rotary_factor" in given else config, "partial_rotary_factor", 1.0)
        if share > 1:
            raise InputError(f"partial_rotary_factor is {share}, expected at most 1")
        if given.get("truncate", True) is not True:
            raise InputError("rope truncate other than true is not supported")
        known = ROPE_TYPES[rope_type]
        if config.get(ORIGINAL_CONTEXT) is not None:  # next to the other parameters, as Phi-3 has it
            given = {**given, ORIGINAL_CONTEXT: config[ORIGINAL_CONTEXT]}
        if given.get(ORIGINAL_CONTEXT) is None and config.get(TRAINED_CONTEXT) is not None:  # so transformers has it
            given = {**given, ORIGINAL_CONTEXT: config[TRAINED_CONTEXT]}
        # A magnitude of 0 is no magnitude.
        names = [*known.parameters, *(name for name in known.optional if given.get(name) not in (None, 0))]
        values = {name: _READ.get(name, number)(given, name) for name in names}
        if known.canonical == LONGROPE:
            values.setdefault("factor", count(config, "max_position_embeddings") / values[ORIGINAL_CONTEXT])
        return cls(known.canonical or rope_type, theta, rotated_share=share, **values)

    def hf_scaling(self) -> RopeScaling | None:
        """The `rope_scaling` of a config.json; theta is next to it."""
        if self.rope_type == "default":
            return None
        known = ROPE_TYPES[self.rope_type]
        values = {name: getattr(self, name) for name in known.parameters + known.optional}
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        present = {name: value for name, value in given.items() if value is not None}
        return cast(RopeScaling, {"rope_type": self.rope_type} | present)

    @property
    def rotation_scale(self) -> float:
        """The factor of rotated queries and of rotated keys."""
        return ROPE_TYPES[self.rope_type].scale(self)

    @property
    def softmax_scale(self) -> float:
        """Latent attention's factor of 1 / sqrt(head_dim): the magnitude that is not in the rotation."""
        if self.rope_type != "yarn" or not self.mscale_all_dim:
            return 1.0
        return yarn.magnitude(self.factor, self.mscale_all_dim) ** 2

    @property
    def changes_at(self) -> int | None:
        """The number of tokens past which a text has other frequencies; None: the same for all."""
        return None if self.short_factor == self.long_factor else self.original_max_position_embeddings

    @property
    def has_fixed_factors(self) -> bool:
        """Whether it is no more than a divisor of each frequency, the same for all texts, that no formula gives."""
        return self.rope_type == LONGROPE and self.changes_at is None and self.rotation_scale == 1.0

    def frequency_divisors(self, head_dim: int, *, is_long: bool = False) -> np.ndarray:
        """Divisor of each rotary pair's frequency, theta ** (-2 i / head_dim).

        is_long  in a text of more than `changes_at` tokens
        returns  [head_dim // 2] float32
        """
        if is_long and self.rope_type == LONGROPE:
            return np.array(self.long_factor, dtype=np.float32)
        return ROPE_TYPES[self.rope_type].divisors(self, head_dim).astype(np.float32)


def fixed_factors(divisors: np.ndarray, context: int) -> RopeScaling:
    """The `rope_scaling` that divides the frequencies of the pairs by these numbers, in texts of any length.

    divisors   [head_dim // 2]
    """
    given = [float(divisor) for divisor in divisors]
    return {
        "rope_type": LONGROPE,
        "short_factor": given,
        "long_factor": given,
        ORIGINAL_CONTEXT: context,
        "attention_factor": 1.0,
    }


def _given(config: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The object with rope_type, that of layers of this kind if each kind has its own.

    A `rope_scaling` that somebody added to a config with `rope_parameters` counts in place of these, or of the part for
    layers without a window.
    raises   InputError if the two name different bases
    source   transformers, modeling_rope_utils.py and configuration_gemma3.py, convert_rope_params_to_dict()
    """
    newer, older = (_object(config, key) for key in ("rope_parameters", "rope_scaling"))
    if not _by_layer_type(config):
        theta = older.get("rope_theta", config.get("rope_theta")) or DEFAULT_THETA
        if older and newer.get("rope_theta", theta) != theta:
            raise InputError(
                f"rope_scaling counts, with rope_theta {theta}, and rope_parameters has rope_theta "
                f"{shown(newer['rope_theta'])}; write the right one into rope_scaling and remove rope_parameters"
            )
        return older or newer
    given = _object(older if _has_layer_types(older) else newer, kind)
    return {**given, **older} if kind == "full_attention" and not _has_layer_types(older) else given


def _object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """raises InputError unless it is an object or null"""
    given = config.get(key) or {}
    if not isinstance(given, Mapping):
        raise InputError(f"{key} is {shown(given)}, expected an object with rope_type")
    return given


def _has_layer_types(given: Any) -> bool:
    return isinstance(given, Mapping) and any(kind in given for kind in LAYER_TYPES)


def _by_layer_type(config: Mapping[str, Any]) -> bool:
    return any(_has_layer_types(config.get(key)) for key in ("rope_scaling", "rope_parameters"))


def _factors(config: Mapping[str, Any], key: str) -> tuple[float, ...]:
    """raises InputError unless there is a list of numbers above 0"""
    values = config.get(key)
    if not isinstance(values, list) or not values:
        raise InputError(f"{key} is {shown(values)}, expected a list with a number for each rotary pair")
    return tuple(number({key: value}, key) for value in values)


_READ = {ORIGINAL_CONTEXT: count, "short_factor": _factors, "long_factor": _factors}


def _unscaled(rope: RopeConfig, head_dim: int) -> np.ndarray:
    return np.ones(head_dim // 2)


def _linear(rope: RopeConfig, head_dim: int) -> np.ndarray:
    """All frequencies equally: positions divided by `factor`. source  Chen et al. 2023, arXiv:2306.15595, eq. 4"""
    return np.full(head_dim // 2, rope.factor)


def _llama3(rope: RopeConfig, head_dim: int) -> np.ndarray:
    """1 for short waves, `factor` for long ones, a blend between.

    A pair turns `turns` times within the original context: fewer than low_freq_factor is a long wave,
    more than high_freq_factor a short one.
    source   Llama 3.1 reference code, `apply_scaling` (meta-llama/llama-models)
    """
    wavelength = 2 * math.pi * rope.theta ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    turns = rope.original_max_position_embeddings / wavelength
    keep = np.clip((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0)
    return 1 / (keep + (1 - keep) / rope.factor)  # keep 0: scaled in full, 1: left alone


def _yarn(rope: RopeConfig, head_dim: int) -> np.ndarray:
    return yarn.divisors(
        rope.theta, head_dim, rope.factor, rope.original_max_position_embeddings, rope.beta_fast, rope.beta_slow
    )


def _short(rope: RopeConfig, head_dim: int) -> np.ndarray:
    return np.array(rope.short_factor)


def _longrope_scale(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    return yarn.long_magnitude(rope.factor, rope.original_max_position_embeddings)


def _one(rope: RopeConfig) -> float:
    return 1.0


def _yarn_scale(rope: RopeConfig) -> float:
    """DeepSeek's models move a part of the magnitude, `mscale_all_dim`, into the softmax."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return yarn.magnitude(rope.factor, rope.mscale) / yarn.magnitude(rope.factor, rope.mscale_all_dim)
    return yarn.magnitude(rope.factor)


@dataclass(frozen=True, slots=True)
class RopeType:
    """parameters: the fields of RopeConfig that a config must give; optional: those that it may give.

    divisors, scale: see `frequency_divisors` and `rotation_scale`
    canonical: another type that this is an older name of
    """

    parameters: tuple[str, ...]
    divisors: Callable[[RopeConfig, int], np.ndarray]
    optional: tuple[str, ...] = ()
    scale: Callable[[RopeConfig], float] = _one
    canonical: str | None = None


_LONGROPE = RopeType(
    ("short_factor", "long_factor", ORIGINAL_CONTEXT),
    _short,
    optional=("factor", "attention_factor"),
    scale=_longrope_scale,
    canonical=LONGROPE,
)
ROPE_TYPES: dict[str, RopeType] = {
    "default": RopeType((), _unscaled),
    "linear": RopeType(("factor",), _linear),
    "llama3": RopeType(("factor", "low_freq_factor", "high_freq_factor", ORIGINAL_CONTEXT), _llama3),
    "yarn": RopeType(
        ("factor", ORIGINAL_CONTEXT),
        _yarn,
        optional=("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"),
        scale=_yarn_scale,
    ),
    LONGROPE: _LONGROPE,
    "su": _LONGROPE,
}
