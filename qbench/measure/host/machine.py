"""The machine that measured: facts for a reader, its graphics cards, and one hash to distinguish machines."""

import ctypes
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar

import psutil

from qbench.measure.host.cgroup import cpu_quota
from qbench.measure.host.conditions import CPU
from qbench.run.rank_layout import find_world
from qbench.version import __version__
from quant.json_data import JsonRow

LIBRARY = "libnvidia-ml.so.1"
TEXT_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE; a driver's version is shorter
CLOCKS = {"processors": 1, "memory": 2}  # of nvmlClockType_t


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


@dataclass(frozen=True, slots=True)
class GraphicsCard(JsonRow):
    """clocks_mhz: the highest of its processors and of its memory"""

    name: str | None = None
    memory_gib: int | None = None
    driver: str | None = None
    clocks_mhz: dict[str, int | None] | None = None


def graphics_cards(library: str = LIBRARY) -> list[GraphicsCard]:
    """Each card of this machine; [] without NVML.

    source   NVML API reference: nvmlDeviceGetName, nvmlDeviceGetMaxClockInfo, nvmlSystemGetDriverVersion
    """
    try:
        lib, count = ctypes.CDLL(library), ctypes.c_uint()
        if lib.nvmlInit_v2() or lib.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
    except (OSError, AttributeError):
        return []
    text = ctypes.create_string_buffer(TEXT_BYTES)
    lib.nvmlSystemGetDriverVersion(text, TEXT_BYTES)
    driver, cards = text.value.decode(), []
    for index in range(count.value):
        handle, memory = ctypes.c_void_p(), _Memory()
        if lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            continue
        lib.nvmlDeviceGetName(handle, text, TEXT_BYTES)
        lib.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        cards.append(
            GraphicsCard(
                name=text.value.decode(),
                memory_gib=round(memory.total / 2**30),
                driver=driver,
                clocks_mhz={name: _clock(lib, handle, kind) for name, kind in CLOCKS.items()},
            )
        )
    return cards


def _clock(lib: ctypes.CDLL, handle: ctypes.c_void_p, kind: int) -> int | None:
    mhz = ctypes.c_uint()
    return None if lib.nvmlDeviceGetMaxClockInfo(handle, kind, ctypes.byref(mhz)) else mhz.value


# The flags that decide which kernels can run.
FLAGS = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512vbmi",
    "amx_tile",
)
# Fields of /proc/cpuinfo that distinguish processors of one name and equal flags; words of `Machine.processor`.
OF_PROCESSOR = {"cpu family": "family", "model": "model", "CPU implementer": "implementer", "CPU part": "part"}
VERSIONED = ("torch", "triton", "numpy", "gguf", "tokenizers")


@dataclass(frozen=True, slots=True)
class Machine(JsonRow):
    """The facts, and `id`, a hash of those that change speed (so not of the host's name).

    processor       "family 26, model 2"; None in records that do not name it
    cores, cpu_quota  that the process may use, and the processors of a quota of its control groups if that is less
    pretended_cpu   QBENCH_CPU if it is set; `features`, and so `id`, are those of the pretended processor
    """

    json_omits: ClassVar[tuple[str, ...]] = ("processor", "cpu_quota", "gpus", "graphics_cards", "pretended_cpu")

    id: str
    cpu: str | None = None
    processor: str | None = None
    flags: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    cores: int | None = None
    cpu_quota: float | None = None
    memory_gib: int | None = None
    architecture: str | None = None
    gpus: tuple[str, ...] | None = None
    graphics_cards: tuple[GraphicsCard, ...] | None = None
    pretended_cpu: str | None = None
    system: str | None = None
    python: str | None = None

    def runs_like(self, other: "Machine") -> bool:
        """Whether speeds of both compare: equal ids, and the same processor as far as both name theirs.

        The id leaves the processor out: Zen 4 and Zen 5 are both "AMD EPYC" with equal flags, and old rows keep theirs.
        """
        processors = {self.processor, other.processor} - {None}
        return self.id == other.id and len(processors) <= 1

    def rounds_like(self, other: "Machine") -> bool:
        """Whether products of many tokens round their inputs the same way: AMX to bfloat16, others to 8 bits."""
        return ("amx" in self.features) == ("amx" in other.features)


@cache
def machine() -> Machine:
    import cpu_kernels

    processor = _processor()
    hardware = {
        "cpu": processor["model name"],
        "flags": [flag for flag in FLAGS if flag in processor["flags"].split()],
        "features": [
            f"{name} (emulated)" if name in cpu_kernels.emulated_features() else name for name in cpu_kernels.features()
        ],
        "cores": available_cores(),
        "memory_gib": installed_gib(psutil.virtual_memory().total),
        "architecture": platform.machine(),
    }
    cards = graphics_cards()
    quota = cpu_quota()
    if quota is not None and quota < _scheduled_cores():  # left out without one, so that such machines keep their ids
        hardware["cpu_quota"] = quota
    if cards:  # left out if there is no card, so that machines without cards keep their ids
        hardware["gpus"] = [f"{card.name}, {card.memory_gib} GiB" for card in cards]
    # On a processor with AVX-512 VNNI no kernel of AVX-VNNI is chosen, so such machines keep their ids.
    better = "avx512_vnni" in hardware["features"]
    counted = hardware | {"features": [name for name in hardware["features"] if not (better and name == "avx_vnni")]}
    digest = hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:12]
    return Machine.from_json(
        {
            "id": digest,
            **hardware,
            **({"processor": text} if (text := processor_text(processor)) else {}),
            **({"graphics_cards": [card.to_json() for card in cards]} if cards else {}),
            **({"pretended_cpu": os.environ[CPU]} if os.environ.get(CPU) else {}),
            "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(),
        }
    )


def processor_text(fields: Mapping[str, str]) -> str:
    """ "family 26, model 2" of the fields of /proc/cpuinfo; "" if it names no processor"""
    return ", ".join(f"{word} {fields[name]}" for name, word in OF_PROCESSOR.items() if name in fields)


def processors_text(found: Iterable[tuple[str | None, str | None]]) -> str:
    """ ": AMD EPYC (family 26, model 2), AMD EPYC (unknown)", the processors of a machine id; "" if all are unknown

    found   names and `Machine.processor`
    """
    distinct = list(dict.fromkeys(found))
    if not any(processor for _, processor in distinct):
        return ""
    return ": " + ", ".join(f"{cpu} ({processor or 'unknown'})" for cpu, processor in distinct)


def last_level_cache_bytes() -> int:
    """All instances of the largest cache that the cores in use have; 0 where the system does not say."""
    instances: dict[str, tuple[int, int]] = {}  # cores that share one -> (level, bytes)
    for core in os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ():
        for index in Path(f"/sys/devices/system/cpu/cpu{core}/cache").glob("index*"):
            level, size, shared = (_line(index / name) for name in ("level", "size", "shared_cpu_list"))
            if level.isdigit() and size.endswith("K"):
                instances[f"{level}:{shared}"] = int(level), 1024 * int(size[:-1])
    last = max((level for level, _ in instances.values()), default=0)
    return sum(size for level, size in instances.values() if level == last)


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def installed_gib(seen: int) -> int:
    """Installed memory, from the bytes that an operating system sees: it keeps some for itself, from boot to boot some
    MiB more or less.
    """
    return 4 * -(-seen // (4 * 2**30))


@cache
def versions() -> dict[str, str]:
    """qbench's own version and those of the packages whose code runs while measuring."""
    found = {"qbench": __version__}
    for package in VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def available_cores() -> int:
    """Cores that this process may use, which a container or taskset may have cut down.

    A quota of 2.5 processors means 2: a third thread would have all of them stopped for a part of each period.
    """
    cores, quota = _scheduled_cores(), cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def _scheduled_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_cores() -> int:
    """Those of this process alone: of a rank its share of the cores of its host"""
    world = find_world()
    return available_cores() if world is None else max(1, available_cores() // world.local_size)


def _processor() -> dict[str, str]:
    found = {"model name": platform.processor() or "unknown", "flags": ""}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if not name.strip():
                    break  # the first processor describes all
                found[name.strip()] = value.strip()
    except OSError:
        pass  # not Linux: the features from CPUID still distinguish machines
    return found
