"""read_cluster: the YAML file of a cluster."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbench.measure.records.kept_ranks import DeviceRates, LinkRates
from qbench.plan.cluster.hosts import GIVEN, MEASURED, Cluster, Device, Link, Place
from qbench.words.written import parse_bytes
from quant.errors import InputError
from quant.yaml_file import check_keys, read_yaml

MOST_DEVICES = 128  # the search grows with the square of it
RATES = "rates"  # in place of figures: "measured", or a file of records


def read_cluster(path: Path) -> Cluster:
    """The cluster that the file describes.

    raises   InputError for a file that cannot be read, unknown or missing keys, names that nothing has, impossible
             figures, and more than MOST_DEVICES devices
    """
    data, what = read_yaml(path, "cluster"), f"cluster {path}"
    check_keys(what, data, ("devices", "links", "hosts", "between"), ("devices", "hosts"))
    devices = {name: _device(f"{what}: device {name}", each, path) for name, each in _named(what, data, "devices")}
    links = {name: _link(f"{what}: link {name}", each, path) for name, each in _named(what, data, "links")}
    places = _places(what, data["hosts"], devices, links)
    between = data.get("between")
    if between is not None:
        _known(f"{what}: between", between, links)
    elif places[-1].host > 0:
        raise InputError(f"{what} has several hosts, but no link between them; give `between: LINK`")
    return Cluster(devices, links, tuple(places), between)


def _named(what: str, data: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    kinds = data.get(key) or {}
    if not isinstance(kinds, dict):
        raise InputError(f"{what}: {key} must be a mapping of names, got {type(kinds).__name__}")
    return [(str(name), each) for name, each in kinds.items()]


def _device(what: str, data: Any, path: Path) -> Device:
    figures = ("operations", "bandwidth")
    check_keys(what, data, ("memory", *figures, RATES), ("memory",))
    memory = round(_amount(f"{what}: memory", data["memory"]))
    if RATES in data:
        return Device(memory, _origin(what, data, path, figures))
    check_keys(what, data, ("memory", *figures), figures)
    operations, bandwidth = (_amount(f"{what}: {key}", data[key]) for key in figures)
    return Device(memory, GIVEN, DeviceRates(operations=operations, bandwidth=bandwidth))


def _link(what: str, data: Any, path: Path) -> Link:
    figures = ("latency_us", "bandwidth")
    check_keys(what, data, (*figures, RATES))
    if RATES in data:
        return Link(_origin(what, data, path, figures))
    check_keys(what, data, figures, figures)
    latency_us, bandwidth = (_amount(f"{what}: {key}", data[key]) for key in figures)
    return Link(GIVEN, LinkRates(latency_s=latency_us * 1e-6, bandwidth=bandwidth))


def _origin(what: str, data: Mapping[str, Any], path: Path, figures: tuple[str, ...]) -> str:
    """MEASURED, or the file of records, which is relative to that of the cluster"""
    given = [key for key in figures if key in data]
    if given:
        raise InputError(f"{what} has both {RATES} and {', '.join(given)}; give one of them")
    rates = data[RATES]
    if not isinstance(rates, str) or not rates:
        raise InputError(f"{what}: {RATES} is {rates!r}, expected {MEASURED!r} or a file of records")
    return MEASURED if rates == MEASURED else str(path.parent / rates)


def _amount(what: str, value: Any) -> float:
    """A number above 0. YAML reads 2e12 as text, and bytes may have a unit."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                value = parse_bytes(value)
            except InputError:
                value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"{what} is not a number above 0; write it like 2e12, or bytes like 80GB")
    return float(value)


def _places(what: str, hosts: Any, devices: Mapping[str, Device], links: Mapping[str, Link]) -> list[Place]:
    if not isinstance(hosts, list) or not hosts:
        raise InputError(f"{what}: hosts must be a list of one or more")
    places: list[Place] = []
    num_hosts = 0
    for number, host in enumerate(hosts, 1):
        about = f"{what}: host {number}"
        check_keys(about, host, ("devices", "link", "count"), ("devices",))
        check_keys(f"{about}: devices", host["devices"], tuple(devices))
        numbers = {name: _count(f"{about}: {name}", count) for name, count in host["devices"].items()}
        copies, link = _count(f"{about}: count", host.get("count", 1)), host.get("link")
        if link is not None:
            _known(f"{about}: link", link, links)
        elif sum(numbers.values()) > 1:
            raise InputError(f"{about} has several devices, but no link between them; give `link: LINK`")
        if len(places) + copies * sum(numbers.values()) > MOST_DEVICES:
            raise InputError(f"{what} has more than {MOST_DEVICES} devices; describe a part of it")
        for copy in range(copies):
            places += [Place(num_hosts + copy, name, link) for name, count in numbers.items() for _ in range(count)]
        num_hosts += copies
    if not places:
        raise InputError(f"{what} has no device; give each host `devices: {{NAME: COUNT}}`")
    return places


def _count(what: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_DEVICES:
        raise InputError(f"{what} is {value!r}, expected a whole number from 1 to {MOST_DEVICES}")
    return value


def _known(what: str, name: Any, links: Mapping[str, Link]) -> None:
    if name not in links:
        raise InputError(f"{what} is {name!r}; known links: {', '.join(links) or 'none'}")
