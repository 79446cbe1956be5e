"""Report: measurements and findings of an artifact's checks, and the parts that they could not check."""

from dataclasses import dataclass, field

import numpy as np

from quant.doctor.findings import Finding
from quant.doctor.measure import Measured
from quant.json_data import JsonData
from quant.models import split_name


@dataclass(slots=True)
class Report:
    """skipped: check -> why there was nothing to look at"""

    tensors: list[Measured] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> "Summary":
        """The report for machines."""
        tensors = [_row(tensor.name, [tensor]) for tensor in self.tensors]
        return Summary(not self.findings, tuple(self.findings), self.skipped, tuple(tensors))

    def rows(self) -> list["TensorRow"]:
        """One row per tensor, and one for all experts of a layer together."""
        groups: dict[str, list[Measured]] = {}
        for tensor in self.tensors:
            name, layer, _ = split_name(tensor.name)
            groups.setdefault(name if layer is None else name.replace("{}", str(layer), 1), []).append(tensor)
        return [_row(name, tensors) for name, tensors in groups.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRow(JsonData):
    """The worst numbers of a tensor, or of several. None: there is no such number"""

    name: str
    format: str
    sqnr_db: float | None
    identical: bool
    saturation: float | None
    scale_min: float | None
    scale_max: float | None
    num_groups: int
    num_dead_groups: int
    num_not_finite: int


@dataclass(frozen=True, slots=True)
class Summary(JsonData):
    """A report as it is printed for machines."""

    healthy: bool
    findings: tuple[Finding, ...]
    skipped: dict[str, str]
    tensors: tuple[TensorRow, ...]


def _row(name: str, tensors: list[Measured]) -> TensorRow:
    """The worst of each number."""
    saturation = [tensor.saturation for tensor in tensors if tensor.saturation is not None]
    scaled = [tensor for tensor in tensors if tensor.scale_max > 0]
    return TensorRow(
        name=name,
        format="/".join(sorted({tensor.format for tensor in tensors})),
        sqnr_db=_finite(min((tensor.sqnr_db for tensor in tensors if tensor.sqnr_db is not None), default=None)),
        identical=bool(tensors) and all(tensor.noise == 0 for tensor in tensors),
        saturation=max(saturation, default=None),
        scale_min=min((tensor.scale_min for tensor in scaled), default=None),
        scale_max=max((tensor.scale_max for tensor in scaled), default=None),
        num_groups=sum(tensor.num_groups for tensor in tensors),
        num_dead_groups=sum(tensor.num_dead_groups for tensor in tensors),
        num_not_finite=sum(tensor.num_not_finite for tensor in tensors),
    )


def _finite(value: float | None) -> float | None:
    """None for inf, which JSON has no word for."""
    return value if value is not None and np.isfinite(value) else None
