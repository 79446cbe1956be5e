"""Rotation of a model before it is quantized: the same function with its outliers spread over all channels."""

from quant.rotation.source import RotatedSource

__all__ = ["RotatedSource"]
