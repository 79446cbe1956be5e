"""CPUs that this process may run on, their NUMA nodes, and the pages of its memory."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from quant.json_data import JsonData

NODES = Path("/sys/devices/system/node")


@dataclass(frozen=True, slots=True)
class Placement(JsonData):
    """affinity "0-3,8", numa_nodes [0]; each None if the system does not say."""

    affinity: str | None
    numa_nodes: list[int] | None


def placement(cpus: set[int] | None = None, nodes: Path = NODES) -> Placement:
    """The placement of the processors that this process may use.

    cpus   those to place; None: the ones that this process may use
    nodes  folder of node0, node1, ..., each with its `cpulist`
    """
    if cpus is None and hasattr(os, "sched_getaffinity"):
        cpus = os.sched_getaffinity(0)
    return Placement(None if cpus is None else cpu_list(cpus), numa_nodes(cpus or set(), nodes))


def cpu_list(cpus: set[int]) -> str:
    """As taskset and Linux write it: runs of neighbours joined, "0-3,8"."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def numa_nodes(cpus: set[int], nodes: Path) -> list[int] | None:
    """The nodes that have one of the CPUs."""
    found = {}
    for folder in nodes.glob("node[0-9]*"):
        try:
            found[int(folder.name.removeprefix("node"))] = parse_cpu_list(
                (folder / "cpulist").read_text(encoding="utf-8")
            )
        except OSError:
            return None
    return sorted(node for node, its in found.items() if its & cpus) or None


def parse_cpu_list(text: str) -> set[int]:
    """The reverse of cpu_list."""
    runs = re.findall(r"(\d+)(?:-(\d+))?", text)
    return {cpu for first, last in runs for cpu in range(int(first), int(last or first) + 1)}


def huge_page_share(file: str = "/proc/self/smaps_rollup") -> float | None:
    """Share of this process's anonymous memory that is in pages of 2 MiB; None if the system has no such file."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
    anonymous = sizes.get("Anonymous", 0)
    return sizes.get("AnonHugePages", 0) / anonymous if anonymous else None
