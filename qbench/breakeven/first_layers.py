"""The model that a question measures: all of it, or its first layers."""

from qbench.breakeven.question import Settings
from qbench.calibration.open_subject import open_subject
from qbench.run.options import RunOptions
from qbench.sources.first_layers import FirstLayers
from quant.source import Source


def opened(spec: str, settings: Settings) -> tuple[Source, RunOptions]:
    """The model that a question measures, and the options to load it with. raises InputError as `open_subject`"""
    subject = open_subject(spec, settings.options)
    source = subject.source
    return source if settings.num_layers is None else FirstLayers(source, settings.num_layers), subject.options
