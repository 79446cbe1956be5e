"""The layout of compressed-tensors: config groups, each a scheme and the linears it is for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, Protocol, TypedDict

import numpy as np

from quant.artifacts.layouts.base import NEXT_STEP, Layout, Part, StoredModule, check_holds, module_of
from quant.artifacts.layouts.fp4s import MXFP4S, NVFP4S
from quant.artifacts.layouts.fp8s import Fp8s
from quant.artifacts.layouts.int8s import Int8s
from quant.artifacts.layouts.packed_ints import G_IDX, PackedInts
from quant.artifacts.layouts.scheme import LINEAR, QuantizationArgs, Scheme, Targets, targets_of
from quant.artifacts.layouts.transforms import KEY, TransformConfig, Turn, read_turns, transform_config
from quant.errors import InputError, shown
from quant.formats import ActivationFormat, Format, TurnedFp4, get_format
from quant.formats.fp4_linear import SUFFIX
from quant.json_fields import JsonFields
from quant.models import EMBEDDING, HEAD, POSITIONS
from quant.present import present
from quant.qtensor import QTensor
from quant.source import TensorInfo

DECIDING = ("type", "num_bits", "strategy", "group_size", "block_structure", "symmetric", "dynamic", "actorder")


class Packer(Protocol):
    """How the linears of `formats` are laid out; `fmt` is one of these."""

    name: str
    mark: str
    formats: tuple[type[Format], ...]

    def scheme(self, fmt: Any) -> Scheme: ...
    def format_name(self, weights: JsonFields, inputs: JsonFields | None) -> str | None: ...
    def parts(self, fmt: Any, info: TensorInfo) -> tuple[Part, ...]: ...
    def pack(self, qtensor: QTensor) -> dict[str, np.ndarray]: ...
    def info(self, fmt: Any, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo: ...
    def unpack(self, fmt: Any, module: StoredModule, info: TensorInfo) -> QTensor: ...


PACKERS: tuple[Packer, ...] = (PackedInts(), Int8s(), Fp8s(), NVFP4S, MXFP4S)
TABLES = (module_of(EMBEDDING), module_of(POSITIONS))  # matrices that are no Linear
MIXED = "mixed-precision"  # of groups that each name their own format
ARGS_DEFAULTS = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": False}  # of keys that may be left away


class ConfigGroup(Scheme):
    """targets: "Linear", or names of modules and a pattern of experts"""

    targets: list[str]
    format: str


class CompressedTensorsConfig(TypedDict):
    """The quantization_config, as it is written."""

    quant_method: str
    format: str
    quantization_status: str
    config_groups: dict[str, ConfigGroup]
    ignore: list[str]
    kv_cache_scheme: None
    global_compression_ratio: None
    transform_config: NotRequired[TransformConfig]


@dataclass(frozen=True, slots=True)
class GroupFormat:
    """One config group as it was read: the format of the modules that its targets name."""

    targets: Targets
    format: Format


class CompressedTensorsLayout(Layout):
    quant_method = "compressed-tensors"
    formats = tuple(fmt for packer in PACKERS for fmt in packer.formats)

    def __init__(
        self,
        groups: Sequence[GroupFormat],
        config: CompressedTensorsConfig | None = None,
        turns: Sequence[Turn] = (),
    ) -> None:
        self._groups = groups
        self._config = config
        self._turns = turns

    @classmethod
    def of_tensors(cls, linears: Mapping[str, TensorInfo]) -> "CompressedTensorsLayout":
        check_holds(cls, linears)
        for name, info in linears.items():
            if info.has_shared("g_idx"):
                raise InputError(
                    f"{name}: compressed-tensors has no place for groups out of order (act-order); use packing gptq"
                )
            fmt = get_format(info.format)
            if isinstance(fmt, ActivationFormat) and fmt.static_inputs and not info.has_shared("input_scale"):
                raise InputError(
                    f"{name}: {fmt.name} needs a scale of its inputs, which the recipe's method does not find; "
                    "use smoothquant or static"
                )
        modules = {module_of(name): info.format for name, info in linears.items()}
        formats = [fmt for fmt in map(get_format, sorted(set(modules.values()))) if cls.holds(fmt)]
        names = {_packer(fmt).name for fmt in formats}
        groups: list[tuple[list[str], Format]] = []
        for fmt in formats:
            members = [module for module, name in modules.items() if name == fmt.name]
            others = [module for module, name in modules.items() if name != fmt.name]
            groups.append(([LINEAR] if len(formats) == 1 else targets_of(members, others), fmt))
        known = {fmt.name for fmt in formats}
        # A tied head has no tensor of its own, and is a Linear all the same.
        ignored = {module for module, name in modules.items() if name not in known} | {module_of(HEAD)} - set(modules)
        config: CompressedTensorsConfig = {
            "quant_method": cls.quant_method,
            "format": MIXED if len(names) > 1 else next(iter(names), PackedInts.name),
            "quantization_status": "compressed",
            "config_groups": {f"group_{number}": _config_group(*group) for number, group in enumerate(groups)},
            "ignore": sorted(ignored),
            "kv_cache_scheme": None,
            "global_compression_ratio": None,
        }
        transforms = transform_config(groups, config["ignore"])
        if transforms is not None:
            config[KEY] = transforms
        return cls([GroupFormat(Targets(targets, "targets"), fmt) for targets, fmt in groups], config)

    @classmethod
    def of_config(cls, config: Mapping[str, Any], where: str) -> "CompressedTensorsLayout":
        groups = config.get("config_groups")
        if not isinstance(groups, Mapping):
            raise InputError(f"{where}: quantization_config has no config_groups")
        format_of_all = JsonFields(config, f"{where}: quantization_config").text("format")
        read = [_read_group(group, format_of_all, where) for group in groups.values()]
        return cls(read, turns=read_turns(config, where))

    def config(self) -> CompressedTensorsConfig:
        return present(self._config)

    def parts(self, info: TensorInfo) -> tuple[Part, ...]:
        fmt = get_format(info.format)
        return _packer(fmt).parts(fmt, info)

    def pack(self, qtensor: QTensor) -> dict[str, np.ndarray]:
        return _packer(get_format(qtensor.format)).pack(qtensor)

    def info(self, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo | None:
        if not any(packer.mark in module.parts for packer in PACKERS):
            if len(shape) == 2 and module.name not in TABLES and self._turn_of(module.name) is not None:
                raise InputError(f"{module.folder}: {module.name} is not quantized, and {KEY} turns its input")
            return None
        fmt = self._format_of(module.name)
        if fmt is None:
            raise InputError(f"{module.folder}: {module.name} is quantized, and no config group is for it")
        fmt = self._turned(fmt, module)
        module.check_matrix(fmt, shape)
        return _packer(fmt).info(fmt, module, shape)

    def claims(self, module: StoredModule, info: TensorInfo) -> set[str]:
        return super().claims(module, info) | {G_IDX}

    def unpack(self, module: StoredModule, info: TensorInfo) -> QTensor:
        fmt = get_format(info.format)
        return _packer(fmt).unpack(fmt, module, info)

    def _turn_of(self, module: str) -> Turn | None:
        return next((turn for turn in self._turns if turn.turns(module)), None)

    def _turned(self, fmt: Format, module: StoredModule) -> Format:
        """The format of the module with the turn of its input.

        raises   InputError if formats of these codes have no such turn
        """
        turn = self._turn_of(module.name)
        if turn is None:
            return fmt
        turned = _known_format(f"{fmt.name}{SUFFIX}")
        if not isinstance(turned, TurnedFp4) or turned.block_size != turn.size:
            raise InputError(
                f"{module.folder}: {KEY} turns {turn.size} inputs of {module.name} together, which is {fmt.name}; read "
                "here are 16 of nvfp4a16 and 32 of mxfp4a16"
            )
        return turned

    def _format_of(self, module: str) -> Format | None:
        """That of the group whose targets name the module best; the first of equals."""
        ranks = [(found, group) for group in self._groups if (found := group.targets.rank(module)) is not None]
        return min(ranks, key=lambda row: row[0])[1].format if ranks else None


def _packer(fmt: Format) -> Packer:
    return next(packer for packer in PACKERS if isinstance(fmt, packer.formats))


def _config_group(targets: list[str], fmt: Format) -> ConfigGroup:
    packer = _packer(fmt)
    return {"targets": targets, **packer.scheme(fmt), "format": packer.name}


def _read_group(group: Any, format_of_all: str | None, where: str) -> GroupFormat:
    """raises InputError for a scheme that is not read here"""
    place = f"{where}: quantization_config's config group"
    fields = JsonFields(group, place)
    weights, inputs = fields.fields("weights"), fields.fields("input_activations")
    targets = Targets(fields.texts("targets"), place)
    name = fields.text("format") or format_of_all
    for packer in PACKERS:
        if packer.name == name and weights is not None:
            format_name = packer.format_name(weights, inputs)
            fmt = _known_format(format_name)
            if fmt is not None and isinstance(fmt, packer.formats) and _same_scheme(packer.scheme(fmt), group):
                return GroupFormat(targets, fmt)
    raise InputError(
        f"{where}: quantization_config asks for {shown(name)} of {_scheme(group)}; read here: "
        f"{PackedInts.name} integers of 2, 3, 4 or 8 bits, by channel or group, {Int8s.name} W8A8, and "
        f"{Fp8s.name} E4M3 by channel or blocks of 128, {NVFP4S.name} and {MXFP4S.name} without rounded inputs; "
        f"{NEXT_STEP}"
    )


def _scheme(group: Mapping[str, Any]) -> str:
    """The keys that decide, and no key that is null or the same in all schemes."""
    words = []
    for noun, key in (("weights", "weights"), ("inputs", "input_activations")):
        given = group.get(key) or {}
        decide = [f"{name} {shown(given[name])}" for name in DECIDING if given.get(name) is not None]
        words += [f"{noun} with {', '.join(decide)}"] if decide else []
    return " and ".join(words) or "no scheme"


def _known_format(name: str | None) -> Format | None:
    try:
        return None if name is None else get_format(name)
    except InputError:
        return None


def _same_scheme(wanted: Scheme, group: Mapping[str, Any]) -> bool:
    """Whether a group asks for the settings of `wanted`, whatever else it asks for."""
    return (
        not group.get("output_activations")
        and _same_args(wanted["weights"], group.get("weights"))
        and _same_args(wanted["input_activations"], group.get("input_activations"))
    )


def _same_args(wanted: QuantizationArgs | None, args: Any) -> bool:
    if wanted is None or not isinstance(args, Mapping):
        return wanted is None and not args
    got = {key: args.get(key, ARGS_DEFAULTS.get(key)) for key in wanted}
    if got.get("group_size") == -1:  # another way to write that there are no groups
        got["group_size"] = None
    return got == dict(wanted)
