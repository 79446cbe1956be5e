"""Memory that this process holds, now and at most, and memory that it may use."""

import psutil

from qbench.measure.host.cgroup import memory_limit_bytes


def usable_memory_bytes() -> int:
    """Installed memory, or the limit of the container if that is less."""
    total, limit = psutil.virtual_memory().total, memory_limit_bytes()
    return total if limit is None else min(total, limit)


def free_memory_bytes() -> int:
    """Memory that this process can still take: of the machine, or of the container if that is less."""
    return min(psutil.virtual_memory().available, usable_memory_bytes() - current_rss_bytes())


def current_rss_bytes() -> int:
    return _status("VmRSS")


def peak_rss_bytes() -> int:
    """The most this process has held since it started or since `reset_peak_rss`."""
    return _status("VmHWM")


def reset_peak_rss() -> bool:
    """Start the peak again from the memory that is held now; False if the system does not allow it (then it counts from
    the start).
    """
    try:
        with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
            file.write("5")  # Linux, proc(5): reset the peak resident set size
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    """raises NotImplementedError if there is no /proc (the peak of a process is not known elsewhere)."""
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024  # "VmHWM:   123456 kB"
    except OSError as error:
        message = f"memory is read from /proc/self/status, which this system lacks: {error}"
        raise NotImplementedError(message) from error
    raise RuntimeError(f"/proc/self/status has no {field}")
