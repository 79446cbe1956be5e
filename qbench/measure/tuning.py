"""`Tuning`: the switch points that `qbench tune` measured on this machine, kept in the user's cache folder."""

import importlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from qbench.measure.host.machine import machine
from qbench.measure.records.record import json_hash
from qbench.runtime.attention.mla_costs import PlanCosts, use_costs
from quant.atomic import atomic_file, check_target
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.json_data import JsonData
from quant.json_file import read_json

VARIABLE = "QBENCH_TUNING"  # "off", or a file in place of the one in the cache folder
OFF = "off"
AMX = "amx"
VERSION = 2  # raised when kernels change so that older points no longer hold
NEVER = 1 << 40  # tokens from which no K-quant is rounded again, and no tile of bfloat16 is taken


@dataclass(frozen=True, slots=True)
class LinearSwitch(JsonData):
    """Products of `op` are direct up to `most_direct` tokens; K-quants are rounded from `least_rerounded` on.

    isa         the instruction set that ran when this was measured; others keep the shipped points
    least_bf16  of AMX: number of tokens from which on its tiles multiply bfloat16; None for other instruction sets
    """

    json_omits: ClassVar[tuple[str, ...]] = ("least_bf16",)

    op: str
    isa: str
    most_direct: int
    least_rerounded: int
    least_bf16: int | None = None


@dataclass(frozen=True, slots=True)
class Tuning(JsonData):
    """The measured table of a machine.

    machine   its id
    linears   ops whose switch points differ from the shipped ones
    threads   number of threads if the user names no other; None: all cores
    latent    costs of the plans of latent attention; None: the shipped ones
    """

    json_omits: ClassVar[tuple[str, ...]] = ("threads", "latent")

    version: int
    machine: str
    made: str
    linears: list[LinearSwitch]
    threads: int | None = None
    latent: dict[str, float] | None = None

    @property
    def name(self) -> str:
        """As records name the table."""
        return f"{self.machine}-{json_hash(self.to_json())[:8]}"

    def use(self) -> None:
        """The kernels and the plans of this process obey the table from now on."""
        kernels = importlib.import_module("cpu_kernels")
        kernels.clear_switch_points()
        for one in self.linears:
            kernels.set_switch_points(one.op, one.isa, one.most_direct, one.least_rerounded, one.least_bf16)
        use_costs(None if self.latent is None else PlanCosts(**self.latent))


def use_shipped() -> None:
    """The shipped switch points hold again."""
    importlib.import_module("cpu_kernels").clear_switch_points()
    use_costs(None)


def tuning_file() -> Path:
    """The file of this machine; machines that share a home have one each."""
    given = os.environ.get(VARIABLE)
    if given and given != OFF:
        return Path(given)
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "qbench" / "tuning" / f"{machine().id}.json"


@cache
def tuned() -> Tuning | None:
    """The table that this process uses, which it begins to use with the first call; None: the shipped points.

    A table that is not this machine's, or not of this version, is ignored, with one line on stderr.
    raises   InputError if the variable names a file that is not there
    """
    if os.environ.get(VARIABLE) == OFF or not has_cpu_kernels():
        return None
    file = tuning_file()
    if not file.exists():
        if os.environ.get(VARIABLE):
            raise InputError(f"{VARIABLE}={file}: no such file; expected a table of `qbench tune`, or {OFF}")
        return None
    found = read_tuning(file)
    if isinstance(found, str):
        print(f"tuning: {file} is ignored: {found}; `qbench tune` measures again", file=sys.stderr)
        return None
    found.use()
    return found


def check_writable(file: Path) -> None:
    """Make the folder of the file. raises InputError if that cannot be, or if the file is something else"""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{file.parent}: cannot make this folder: {error.strerror}") from error
    check_target(file, Path.is_file)


def keep_tuning(table: Tuning, file: Path) -> None:
    """raises InputError as `check_writable`"""
    with atomic_file(file) as temporary:
        temporary.write_text(json.dumps(table.to_json(), indent=1) + "\n", encoding="utf-8")


def read_tuning(file: Path) -> Tuning | str:
    """The table in the file, or why this machine cannot use it."""
    try:
        document = read_json(file)
    except InputError:
        return "it is no JSON object"
    if document.get("version") != VERSION:
        return f"it has version {document.get('version')}, and this qbench reads {VERSION}"
    if document.get("machine") != machine().id:
        return f"it is of machine {document.get('machine')}, and this is {machine().id}"
    try:
        found = Tuning.from_json(document)
        check_tuning(found)
    except (KeyError, TypeError, ValueError) as error:
        return f"it is damaged ({' '.join(str(error).split())})"
    return found


def check_tuning(table: Tuning) -> None:
    """raises ValueError or TypeError for entries that the kernels or plans would refuse"""
    kernels = importlib.import_module("cpu_kernels")
    ops = {row["op"] for row in kernels.op_table()}
    for one in table.linears:
        is_known = one.op in ops and one.isa in kernels.features()
        has_points = one.most_direct >= 0 and one.least_rerounded >= 1
        suits_amx = one.least_bf16 is None if one.isa != AMX else one.least_bf16 is not None and one.least_bf16 >= 1
        if not (is_known and has_points and suits_amx):
            raise ValueError(f"entry {asdict(one)}")
    if table.threads is not None and not 1 <= table.threads <= (machine().cores or 1):
        raise ValueError(f"{table.threads} threads")
    if table.latent is not None and min(asdict(PlanCosts(**table.latent)).values()) < 0:
        raise ValueError("negative costs")
