"""Cluster: hosts, their devices and the links between them, with the rates of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from qbench.measure.records.kept_ranks import DeviceRates, LinkRates
from quant.json_data import JsonData
from quant.present import present

GIVEN = "given"  # in the file of the cluster
MEASURED = "measured"  # between the ranks at hand


@dataclass(frozen=True, slots=True)
class Device(JsonData):
    """A kind of device.

    memory_bytes  for weights, keys, values and activations
    origin        of the rates: GIVEN, MEASURED, or the path of a record
    rates         None until they are measured or read
    """

    memory_bytes: int
    origin: str = GIVEN
    rates: DeviceRates | None = None


@dataclass(frozen=True, slots=True)
class Link(JsonData):
    """A kind of link. origin, rates: as of a device"""

    origin: str = GIVEN
    rates: LinkRates | None = None


@dataclass(frozen=True, slots=True)
class Place(JsonData):
    """One device. host: its number; device, link: names of their kinds; the link joins the devices of the host"""

    host: int
    device: str
    link: str | None


Part = TypeVar("Part", Device, Link)
Rates = tuple[DeviceRates, LinkRates]


@dataclass(frozen=True, slots=True)
class Cluster(JsonData):
    """Ranks are placed on devices in the order of `places`.

    between  name of the link between hosts; None: there is one host
    """

    devices: Mapping[str, Device]
    links: Mapping[str, Link]
    places: tuple[Place, ...]
    between: str | None

    @property
    def origins(self) -> set[str]:
        """Places that rates come from, apart from the file itself"""
        return {part.origin for part in (*self.devices.values(), *self.links.values())} - {GIVEN}

    def with_rates(self, rates_of: Callable[[str], Rates]) -> "Cluster":
        """The cluster with all rates. rates_of: origin -> rates of a device and of a link"""
        devices = {
            name: device if device.rates else replace(device, rates=rates_of(device.origin)[0])
            for name, device in self.devices.items()
        }
        links = {
            name: link if link.rates else replace(link, rates=rates_of(link.origin)[1])
            for name, link in self.links.items()
        }
        return replace(self, devices=devices, links=links)

    def device(self, place: Place) -> Device:
        return self.devices[place.device]

    def link_name(self, one: Place, other: Place) -> str:
        return present(one.link if one.host == other.host else self.between)

    def worst_link(self, places: tuple[Place, ...]) -> str | None:
        """Name of the slowest link between two of them, for short messages first; None for one place"""
        names = {self.link_name(a, b) for i, a in enumerate(places) for b in places[:i]}
        return max(names, key=self._slowness, default=None)

    def _slowness(self, name: str) -> tuple[float, float]:
        rates = present(self.links[name].rates)
        return rates.latency_s, -rates.bandwidth
