"""Checks of an artifact: its tensors one at a time, then the whole model."""

from quant.doctor.examine import examine
from quant.doctor.findings import Finding
from quant.doctor.reference import Reference, reference_of
from quant.doctor.report import Report

__all__ = ["Finding", "Reference", "Report", "examine", "reference_of"]
