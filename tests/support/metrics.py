"""Metrics of a server, as Prometheus would read them."""

import httpx


def metrics_of(url: str, timeout_s: float | None = 5.0) -> dict[str, float]:
    """Name with its labels -> value"""
    lines = httpx.get(f"{url}/metrics", timeout=timeout_s).text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}
