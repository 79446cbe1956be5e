"""`ref:NAME`: the models that come with qbench."""

from dataclasses import dataclass
from pathlib import Path

from quant.artifacts.hf_reader import HFSource
from quant.errors import InputError
from quant.source import Source

PREFIX = "ref:"


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """weights: the name under which qbench.reference keeps them."""

    weights: str
    outliers: bool
    description: str


REFERENCES = {
    "llama": ReferenceRow("llama", False, "trained on text that qbench generates; works offline"),
    "llama-outliers": ReferenceRow("llama", True, "the same function with the activation outliers of large models"),
}


def open_reference(spec: str) -> Source:
    """raises InputError for an unknown name, or weights that this installation lacks"""
    name = spec.removeprefix(PREFIX)
    row = REFERENCES.get(name)
    if row is None:
        raise InputError(f"reference model {name!r} is unknown; known: {', '.join(REFERENCES)}")
    source = HFSource(reference_dir(row.weights), spec)
    if not row.outliers:
        return source
    from qbench.reference.outliers import OutlierSource

    return OutlierSource(source, spec)


def reference_dir(name: str) -> Path:
    from qbench.reference import weights_dir

    return weights_dir(name)
