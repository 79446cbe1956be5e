"""The graphics cards of a machine as NVML lists them: a process that asks has no CUDA context of its own."""

import ctypes
from dataclasses import dataclass

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
