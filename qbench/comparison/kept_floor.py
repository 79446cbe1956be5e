"""Noise floors as records keep them."""

from collections.abc import Mapping, Sequence

from qbench.measure.records.kinds import NOISE_FLOOR, FloorCase, FloorMetrics
from qbench.measure.records.record import Record
from qbench.statistics.cell import Floors
from qbench.store import latest_records


def kept_floors(paths: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """(fingerprint of the model, protocol hash) -> metric -> floor; of several machines' the highest."""
    floors: dict[tuple[str, str], dict[str, float]] = {}
    for record in latest_records(paths, kinds=(NOISE_FLOOR,)).values():
        case, metrics = record.case, record.metrics
        if record.is_ok and isinstance(case, FloorCase) and isinstance(metrics, FloorMetrics):
            known = floors.setdefault((case.fingerprint or "", metrics.protocol_hash or ""), {})
            for metric, floor in (metrics.floor or {}).items():
                known[metric] = max(floor, known.get(metric, 0.0))
    return floors


def of_model(floors: Mapping[tuple[str, str], Mapping[str, float]], row: Record) -> Floors:
    """Those of `kept_floors` that are of a row's model: protocol hash -> metric -> floor."""
    model = getattr(row.case, "fingerprint", None)
    return {protocol: floor for (fingerprint, protocol), floor in floors.items() if fingerprint == model}
