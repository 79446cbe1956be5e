"""Memory that this process holds, now and at most, and memory that it may use."""

from pathlib import Path

import psutil

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # version 2, version 1


def usable_memory_bytes() -> int:
    """Installed memory, or the limit of the container if that is less."""
    limits = [psutil.virtual_memory().total]
    for path in CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # version 2 writes "max" if there is no limit
            limits.append(int(text))
    return min(limits)


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
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # Linux, proc(5): reset the peak resident set size
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    """raises NotImplementedError if there is no /proc (the peak of a process is not known elsewhere)."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024  # "VmHWM:   123456 kB"
    except OSError as error:
        message = f"memory is read from /proc/self/status, which this system lacks: {error}"
        raise NotImplementedError(message) from error
    raise RuntimeError(f"/proc/self/status has no {field}")
