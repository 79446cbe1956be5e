"""`quantization_config` of quant_method "gptq": one setting for all linears, and patterns for those that differ."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quant.artifacts.layouts.base import module_of
from quant.artifacts.layouts.int_parts import int_group_format
from quant.errors import InputError
from quant.formats import IntGroupFormat, get_format
from quant.models import HEAD
from quant.present import present
from quant.source import TensorInfo

V1, V2 = "gptq", "gptq_v2"  # how zero points are stored, by `checkpoint_format`
SKIP = "-:"  # pattern of modules that are not quantized; "+:" or nothing: those with settings of their own
PACK_DTYPE = "int32"


@dataclass(frozen=True, slots=True)
class GptqConfig:
    """version   V1 or V2
    raw       the config.json object
    """

    version: str
    raw: Mapping[str, Any]

    @classmethod
    def read(cls, raw: Mapping[str, Any], where: str) -> "GptqConfig":
        """raises InputError for versions, patterns and settings that are not read here"""
        version = raw.get("checkpoint_format") or raw.get("format") or V1
        pack_dtype = raw.get("pack_dtype") or PACK_DTYPE
        if version not in (V1, V2) or pack_dtype != PACK_DTYPE:
            raise InputError(
                f"{where}: quantization_config has checkpoint_format {version!r} in {pack_dtype!r}; "
                f"read here: {V1} and {V2} in {PACK_DTYPE}"
            )
        config = cls(version, raw)
        patterns = config.patterns
        if not isinstance(patterns, Mapping) or not all(_is_pattern(*item) for item in patterns.items()):
            raise InputError(
                f"{where}: quantization_config's 'dynamic' maps patterns to settings, got {patterns!r:.100}"
            )
        for settings in ({}, *patterns.values()):
            if config.format_of_settings(settings) is None:
                raise InputError(
                    f"{where}: quantization_config asks for {dict(settings) or _main_settings(raw)}; "
                    "read here: bits 2, 3, 4 or 8, a group_size above 0 or -1, sym true or false"
                )
        return config

    @property
    def patterns(self) -> Mapping[str, Any]:
        return self.raw.get("dynamic") or {}

    def format_of(self, module: str) -> IntGroupFormat:
        """The format of a quantized module: that of the first pattern that matches, else everybody's."""
        for pattern, settings in self.patterns.items():
            if not pattern.startswith(SKIP) and re.match(pattern.removeprefix("+:"), module):
                return present(self.format_of_settings(settings))
        return present(self.format_of_settings({}))

    def format_of_settings(self, settings: Mapping[str, Any]) -> IntGroupFormat | None:
        """None for settings that stand for no format of ours."""
        settings = {**_main_settings(self.raw), **settings}
        bits, group_size, symmetric = (settings.get(key) for key in ("bits", "group_size", "sym"))
        if type(bits) is not int or type(group_size) is not int or type(symmetric) is not bool:
            return None
        group = "" if group_size == -1 else f"g{group_size}"
        return IntGroupFormat.parse(f"w{bits}{group}{'' if symmetric else '-asym'}")

    @classmethod
    def write(cls, linears: Mapping[str, TensorInfo]) -> "GptqConfig":
        """linears: canonical name -> info, floats included; most of the integers have the settings of all."""
        packed = {name: info.format for name, info in linears.items() if _is_int(info)}
        formats = [int_group_format(fmt) for fmt in packed.values()]
        version = V1 if all(fmt.symmetric for fmt in formats) else V2
        main = max(sorted(set(packed.values())), key=list(packed.values()).count)
        raw = {
            "quant_method": "gptq",
            "checkpoint_format": version,
            "pack_dtype": PACK_DTYPE,
            **_settings(int_group_format(main)),
            "desc_act": any(info.has_shared("g_idx") for info in linears.values()),
            "lm_head": HEAD in packed,
        }
        dynamic = {
            f"+:^{_escaped(name)}$": _settings(int_group_format(fmt)) for name, fmt in packed.items() if fmt != main
        }
        # The head and what lies outside the decoder layers is left alone unless asked for.
        skipped = [name for name in linears if name not in packed and name != HEAD]
        dynamic |= {f"{SKIP}^{_escaped(name)}$": {} for name in skipped}
        return cls(version, raw | ({"dynamic": dynamic} if dynamic else {}))


def _is_int(info: TensorInfo) -> bool:
    return isinstance(get_format(info.format), IntGroupFormat)


def _settings(fmt: IntGroupFormat) -> dict[str, Any]:
    return {"bits": fmt.bits, "group_size": fmt.group_size or -1, "sym": fmt.symmetric}


def _main_settings(raw: Mapping[str, Any]) -> dict[str, Any]:
    """AutoGPTQ's defaults where an old file leaves a key away."""
    return {"bits": raw.get("bits"), "group_size": raw.get("group_size", 128), "sym": raw.get("sym", True)}


def _escaped(name: str) -> str:
    return re.escape(module_of(name))


def _is_pattern(pattern: Any, settings: Any) -> bool:
    try:
        re.compile(pattern.removeprefix(SKIP).removeprefix("+:"))
    except (re.error, AttributeError):
        return False
    return isinstance(settings, Mapping)
