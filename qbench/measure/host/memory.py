"""Memory that this process holds, now and at most."""


def current_rss_bytes() -> int:
    return _status("VmRSS")


def peak_rss_bytes() -> int:
    """The most this process has held since it started or since `reset_peak_rss`."""
    return _status("VmHWM")


def reset_peak_rss() -> bool:
    """Start the peak anew from what is held now; False where the system does not let us (it is since start then)."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # Linux, proc(5): reset the peak resident set size
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    """raises NotImplementedError where there is no /proc (the peak of a process is not known elsewhere)."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024  # "VmHWM:   123456 kB"
    except OSError as error:
        message = f"memory is read from /proc/self/status, which this system lacks: {error}"
        raise NotImplementedError(message) from error
    raise RuntimeError(f"/proc/self/status has no {field}")
