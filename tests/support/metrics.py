"""Metrics of a server, as Prometheus would read them."""

from support import patient


def metrics_of(url: str) -> dict[str, float]:
    """Name with its labels -> value"""
    lines = patient.get(f"{url}/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}
