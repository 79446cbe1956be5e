"""`quantization_config` of quant_method "gptq": one setting for all linears, and patterns for those that differ."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from quant.artifacts.layouts.base import NEXT_STEP, module_of
from quant.artifacts.layouts.int_parts import int_group_format
from quant.artifacts.layouts.patterns import Pattern, compiled
from quant.errors import InputError, shown
from quant.formats import IntGroupFormat, get_format
from quant.json_fields import JsonFields
from quant.models import HEAD
from quant.source import TensorInfo

V1, V2 = "gptq", "gptq_v2"  # how zero points are stored, by `checkpoint_format`
SKIP = "-:"  # pattern of modules that are not quantized; "+:" or nothing: those with settings of their own
PACK_DTYPE = "int32"


class GptqSettings(TypedDict, total=False):
    """Settings of the linears that a pattern matches; empty for those that are skipped.

    group_size   -1 if there are no groups
    """

    bits: int
    group_size: int
    sym: bool


class GptqDocument(GptqSettings):
    """The quantization_config, as it is written. dynamic: pattern -> settings"""

    quant_method: str
    checkpoint_format: str
    pack_dtype: str
    desc_act: bool
    lm_head: bool
    dynamic: NotRequired[dict[str, GptqSettings]]


@dataclass(frozen=True, slots=True)
class GptqConfig:
    """version   V1 or V2
    format    of the modules that no pattern matches
    patterns  (pattern, format) of those that have their own; the first that matches counts
    document  the config.json object to write; None for a config that was read
    """

    version: str
    format: IntGroupFormat
    patterns: tuple[tuple[Pattern, IntGroupFormat], ...] = ()
    document: GptqDocument | None = None

    @classmethod
    def read(cls, raw: Mapping[str, Any], where: str) -> "GptqConfig":
        """raises InputError for versions, patterns and settings that are not read here"""
        fields = JsonFields(raw, f"{where}: quantization_config")
        version = fields.text("checkpoint_format") or fields.text("format") or V1
        pack_dtype = fields.text("pack_dtype") or PACK_DTYPE
        if version not in (V1, V2) or pack_dtype != PACK_DTYPE:
            raise InputError(
                f"{where}: quantization_config has checkpoint_format {shown(version)} in {shown(pack_dtype)}; "
                f"read here: {V1} and {V2} in {PACK_DTYPE}; {NEXT_STEP}"
            )
        dynamic = raw.get("dynamic") or {}
        if not isinstance(dynamic, Mapping) or not all(isinstance(value, Mapping) for value in dynamic.values()):
            raise InputError(
                f"{where}: quantization_config's 'dynamic' maps patterns to settings, got {shown(dynamic)}"
            )
        formats = {pattern: _format_of(raw, settings, where) for pattern, settings in dynamic.items()}
        named = [(pattern.removeprefix("+:"), fmt) for pattern, fmt in formats.items() if not pattern.startswith(SKIP)]
        patterns = tuple((compiled(text, f"{where}: quantization_config's 'dynamic'"), fmt) for text, fmt in named)
        return cls(version, _format_of(raw, {}, where), patterns)

    def format_of(self, module: str) -> IntGroupFormat:
        """The format of a quantized module: that of the first pattern that matches, else everybody's."""
        return next((fmt for pattern, fmt in self.patterns if pattern.matches(module)), self.format)

    @classmethod
    def write(cls, linears: Mapping[str, TensorInfo]) -> "GptqConfig":
        """linears: canonical name -> info, floats included; most of the integers have the settings of all."""
        packed = {name: info.format for name, info in linears.items() if _is_int(info)}
        formats = [int_group_format(fmt) for fmt in packed.values()]
        version = V1 if all(fmt.symmetric for fmt in formats) else V2
        main = max(sorted(set(packed.values())), key=list(packed.values()).count)
        document: GptqDocument = {
            "quant_method": "gptq",
            "checkpoint_format": version,
            "pack_dtype": PACK_DTYPE,
            **_settings(int_group_format(main)),
            "desc_act": any(info.has_shared("g_idx") for info in linears.values()),
            "lm_head": HEAD in packed,
        }
        others = [(f"^{_escaped(name)}$", int_group_format(fmt)) for name, fmt in packed.items() if fmt != main]
        dynamic = {f"+:{text}": _settings(fmt) for text, fmt in others}
        # The head and modules outside the decoder layers are left alone unless asked for.
        skipped = [name for name in linears if name not in packed and name != HEAD]
        dynamic |= {f"{SKIP}^{_escaped(name)}$": GptqSettings() for name in skipped}
        if dynamic:
            document["dynamic"] = dynamic
        patterns = tuple((compiled(text, "dynamic"), fmt) for text, fmt in others)
        return cls(version, int_group_format(main), patterns, document)


def _is_int(info: TensorInfo) -> bool:
    return isinstance(get_format(info.format), IntGroupFormat)


def _settings(fmt: IntGroupFormat) -> GptqSettings:
    return {"bits": fmt.bits, "group_size": fmt.group_size or -1, "sym": fmt.symmetric}


def _format_of(raw: Mapping[str, Any], own: Mapping[str, Any], where: str) -> IntGroupFormat:
    """The format of a config's settings and a pattern's own. raises InputError if there is no such format here"""
    main = {
        "bits": raw.get("bits"),
        "group_size": raw.get("group_size", 128),
        "sym": raw.get("sym", True),
    }  # AutoGPTQ's
    bits, group_size, symmetric = ({**main, **own}.get(key) for key in ("bits", "group_size", "sym"))
    found = None
    if type(bits) is int and type(group_size) is int and type(symmetric) is bool:
        group = "" if group_size == -1 else f"g{group_size}"
        found = IntGroupFormat.parse(f"w{bits}{group}{'' if symmetric else '-asym'}")
    if found is None:
        raise InputError(
            f"{where}: quantization_config asks for {shown(dict(own) or main)}; "
            f"read here: bits 2, 3, 4 or 8, a group_size above 0 or -1, sym true or false; {NEXT_STEP}"
        )
    return found


def _escaped(name: str) -> str:
    return re.escape(module_of(name))
