"""Energy: joules that processor, memory and graphics cards have taken, from counters that the system lets us read."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path("/")
NVML = "libnvidia-ml.so.1"
# Counters that a package includes (core, uncore), and one that counts all of it again (psys), are left out.
DOMAINS = ("package", "dram")


@dataclass(frozen=True, slots=True)
class Counter:
    """A number of joules that grows, from wherever it began; it starts again from 0 at `wraps_at`, if that is given."""

    name: str
    joules: Callable[[], float]
    wraps_at: float | None = None


@dataclass(frozen=True, slots=True)
class Meter:
    """counters  empty if nothing can be read
    reason    why not, for each missing kind of counter; None if there is any counter
    """

    counters: tuple[Counter, ...]
    reason: str | None

    def read(self) -> list[float]:
        return [counter.joules() for counter in self.counters]

    def since(self, before: list[float]) -> dict[str, float]:
        """Joules of each counter since this reading, which it may have started again in once."""
        spent = {}
        for counter, start, end in zip(self.counters, before, self.read(), strict=True):
            spent[counter.name] = end - start + (counter.wraps_at or 0.0 if end < start else 0.0)
        return spent


NO_METER = Meter((), "it was not asked for")


def find_meter(root: Path = ROOT, nvml: str = NVML) -> Meter:
    """Every counter of this machine that can be read now."""
    rapl, no_rapl = rapl_counters(root / "sys/class/powercap")
    cards, no_cards = nvml_counters(nvml)
    counters = (*rapl, *cards)
    return Meter(counters, None if counters else f"{no_rapl}; {no_cards}")


def rapl_counters(folder: Path) -> tuple[list[Counter], str]:
    """Packages and their memory, as Linux's powercap has them for Intel and AMD processors; and the reason if the list
    is empty.
    """
    counters = []
    for zone in sorted(folder.glob("intel-rapl:*")):
        try:
            name = (zone / "name").read_text(encoding="utf-8").strip()
            if not name.startswith(DOMAINS):
                continue
            wraps_at = float((zone / "max_energy_range_uj").read_text(encoding="utf-8")) / 1e6
            read = _microjoules(zone / "energy_uj")
            read()
        except OSError as error:
            return [], f"RAPL is not readable ({zone / 'energy_uj'}: {error.strerror})"
        # dram is inside a package: intel-rapl:1:0 is of package-1
        package = zone.name.split(":")[1]
        counters.append(Counter(f"{name}-{package}" if name == "dram" else name, read, wraps_at))
    return counters, f"RAPL is absent ({folder} has no counter)"


def _microjoules(path: Path) -> Callable[[], float]:
    return lambda: float(path.read_text(encoding="utf-8")) / 1e6


def nvml_counters(library: str) -> tuple[list[Counter], str]:
    """NVIDIA's cards from Volta on; and the reason if the list is empty.

    source   NVML API reference: nvmlDeviceGetTotalEnergyConsumption, in millijoules since the driver was loaded
    """
    try:
        lib = ctypes.CDLL(library)
        status, count = lib.nvmlInit_v2(), ctypes.c_uint()
        status = status or lib.nvmlDeviceGetCount_v2(ctypes.byref(count))
    except (OSError, AttributeError):
        return [], f"NVML is absent ({library} cannot be loaded)"
    if status:
        return [], f"NVML is not readable (status {status})"
    counters = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        status = lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        if status or _joules(lib, handle) is None:
            return [], f"NVML is not readable (card {index} does not count its energy)"
        counters.append(Counter(f"gpu-{index}", partial(_joules_again, lib, handle)))
    return counters, "NVML is absent (it knows of no card)"


def _joules(lib: ctypes.CDLL, handle: ctypes.c_void_p) -> float | None:
    """None if the card does not count its energy."""
    value = ctypes.c_ulonglong()
    status = lib.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value))
    return None if status else value.value / 1e3


def _joules_again(lib: ctypes.CDLL, handle: ctypes.c_void_p) -> float:
    """raises OSError for a card that counted its energy before and no longer does"""
    joules = _joules(lib, handle)
    if joules is None:
        raise OSError("NVML no longer reads the energy of a card that it read before")
    return joules
