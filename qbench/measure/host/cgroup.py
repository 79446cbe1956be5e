"""Limits of the control groups that this process is in: of a container, a service, or a job of a cluster."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
CGROUP2 = "cgroup2"  # type of the file system of version 2; version 1 has "cgroup" and a folder per controller


def cpu_quota(root: Path = ROOT) -> float | None:
    """Processors whose time the groups grant, as in 1.5; None without a quota.

    root     the folder that holds proc and sys
    source   Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (cpu.cfs_quota_us)
    """
    quotas = []
    for folder in group_folders("cpu", root):
        words = _words(folder / "cpu.max") or [
            *_words(folder / "cpu.cfs_quota_us"),
            *_words(folder / "cpu.cfs_period_us"),
        ]
        if len(words) == 2 and all(word.isdigit() and int(word) for word in words):  # "max" or -1: no limit
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The least limit of the groups; None without one. root as in `cpu_quota`"""
    limits = []
    for folder in group_folders("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):  # versions 2 and 1
            limits += [int(word) for word in _words(folder / name) if word.isdigit()]
    return min(limits, default=None)


def group_folders(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folders of the process's group and of the groups around it, as far as they are mounted.

    source   Linux, man pages cgroups(7) and proc_pid_mountinfo(5)
    """
    groups = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup")]  # hierarchy, controllers, path
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        mounted, mount_point, (kind, *_, options) = *before.split()[3:5], after.split()
        if kind != CGROUP2 and (kind != "cgroup" or controller not in options.split(",")):
            continue
        for _, controllers, path in (group for group in groups if len(group) == 3):
            if (controllers == "") if kind == CGROUP2 else controller in controllers.split(","):
                top = root / mount_point.lstrip("/")
                # In a container the path may be that of the host, of which only the container's own part is mounted.
                is_inside = path.startswith(mounted) and ".." not in path.split("/")
                inside = path.removeprefix(mounted) if is_inside else ""
                own = top / inside.strip("/")
                yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(top))


def _lines(path: Path) -> list[str]:
    """No lines for a file that cannot be read, as on other systems."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]
