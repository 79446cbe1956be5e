"""State of the machine during a timed span: clock, heat, load, other processes, energy, and forced choices."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from qbench.measure.host.energy import NO_METER, Meter
from quant.errors import InputError

WATCHED_S = 0.5
QUIET = 0.1  # share of all cores that an idle system uses
ISA = "QBENCH_ISA"
CPU = "QBENCH_CPU"  # a processor that is pretended; it is a fact of the machine and not of a case
LINEAR_PATH = "QBENCH_LINEAR_PATH"
TILES_ONLY = "bf16"  # its value that only amx has
# The other switches, and the values that they know.
SWITCHES = {
    LINEAR_PATH: ("direct", "tile", TILES_ONLY),
    "QBENCH_F16_COMPUTE": ("bfloat16", "float32"),
    "QBENCH_K_QUANT_COMPUTE": ("int8x256", "exact"),
}


def busy_share() -> float:
    """The share of all cores' time that is not idle, 0 to 1, while this process waits."""
    return psutil.cpu_percent(interval=WATCHED_S) / 100


def busy_warning(share: float) -> str | None:
    """One line for the user, if other processes take so much that speeds are lower than on an idle machine."""
    if share <= QUIET:
        return None
    return f"warning: other programs keep {100 * share:.0f} % of this machine busy; speeds are of what they leave"


Clock = Callable[[], float]  # seconds since some moment
# "cpu" is the time that this process gets: others hardly change it if one thread does all the work.
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


def check_clock(clock: str, threads: int) -> None:
    """raises InputError where processor time is asked for more than one thread, which wait for each other"""
    if clock == "cpu" and threads != 1:
        raise InputError(f"{threads} threads also take time while they wait; count it with --threads 1")


ROOT = Path("/")
# The counts of /proc/stat come in ticks of 10 ms: of fewer than ten a share says little.
LEAST_TICKS = 10


@dataclass(frozen=True, slots=True)
class Conditions:
    """Each None where the system does not say.

    clock_mhz       of the fastest cores, as many as there are threads, on average, right after
    temperature_c   of the hottest sensor, right after
    load            processes that ran or wanted to, averaged by the system over a minute
    busy_by_others  share of all cores' time that neither idling nor the timed process took, 0 to 1; stolen time too
    joules          by counter, of the whole machine, idle power included; {} if no counter can be read
    seconds         of the joules
    """

    clock_mhz: float | None
    temperature_c: float | None
    load: float | None
    busy_by_others: float | None
    joules: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


class Watch:
    """Reads the system's counters before and after the timed span.

    pid    the process that is timed
    meter  of the energy
    root   the folder that holds proc and sys
    """

    def __init__(self, pid: int, threads: int, meter: Meter = NO_METER, root: Path = ROOT) -> None:
        self.pid, self.threads, self.meter, self.root = pid, threads, meter, root
        self.before: tuple[int, int, int] | None = None
        self.joules_before: list[float] = []
        self.started = 0.0

    def start(self) -> None:
        self.before = self._ticks()
        self.joules_before, self.started = self.meter.read(), time.perf_counter()

    def stop(self) -> Conditions:
        seconds, joules = time.perf_counter() - self.started, self.meter.since(self.joules_before)
        return Conditions(
            joules=joules,
            seconds=seconds,
            clock_mhz=clock_mhz(self.threads, self.root),
            temperature_c=temperature_c(self.root),
            load=load(self.root),
            busy_by_others=_share_of_others(self.before, self._ticks()),
        )

    def _ticks(self) -> tuple[int, int, int] | None:
        """Up to now: of all cores, of those the busy, and of the timed process."""
        try:
            line = (self.root / "proc/stat").read_text(encoding="utf-8").partition("\n")[0]
            own = (self.root / f"proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        ticks = [int(word) for word in line.split()[1:9]]  # user nice system idle iowait irq softirq steal
        return sum(ticks), sum(ticks) - ticks[3] - ticks[4], int(own[11]) + int(own[12])  # utime and stime


def _share_of_others(before: tuple[int, int, int] | None, after: tuple[int, int, int] | None) -> float | None:
    if before is None or after is None:
        return None
    total, busy, own = (end - start for start, end in zip(before, after, strict=True))
    return max(0.0, (busy - own) / total) if total >= LEAST_TICKS else None


def clock_mhz(threads: int, root: Path = ROOT) -> float | None:
    """From the frequency driver, else from /proc/cpuinfo, which in a virtual machine gives a nominal value."""
    cores = [_number(path) for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")]
    clocks = [kilohertz / 1e3 for kilohertz in cores if kilohertz is not None]
    if not clocks:
        try:
            text = (root / "proc/cpuinfo").read_text(encoding="utf-8")
        except OSError:
            return None
        clocks = [float(found) for found in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, re.MULTILINE)]
    fastest = sorted(clocks)[-threads:]
    return sum(fastest) / len(fastest) if fastest else None


def temperature_c(root: Path = ROOT) -> float | None:
    zones = [_number(path) for path in (root / "sys/class/thermal").glob("thermal_zone*/temp")]
    return max((milli / 1e3 for milli in zones if milli is not None), default=None)


def load(root: Path = ROOT) -> float | None:
    try:
        return float((root / "proc/loadavg").read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def forced() -> str | None:
    """ "QBENCH_ISA=scalar QBENCH_LINEAR_PATH=tile"; None if nothing is forced."""
    given = [f"{name}={os.environ[name]}" for name in (ISA, *SWITCHES) if os.environ.get(name)]
    return " ".join(given) or None
