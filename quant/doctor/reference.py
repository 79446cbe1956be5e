"""The model that an artifact was made from, if it is available, and its comparable tensors."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quant.artifacts.manifest import Manifest
from quant.errors import InputError
from quant.formats import dequantize
from quant.models import EMBEDDING, HEAD
from quant.qtensor import QTensor
from quant.source import Source

# Methods that put scales of their own into norms and weights, which then are another model's, tensor by tensor.
FOLDING = ("smoothquant", "awq")
# A norm in bfloat16 is within 2^-9 of its source's; a fold of scales changes most of its values by far more.
SAME_NORM = 2.0**-7
HUB = "hf:"


@dataclass(frozen=True, slots=True)
class Reference:
    """source   None if `why_not` gives a reason"""

    source: Source | None
    why_not: str | None = None

    @property
    def tied(self) -> bool:
        return self.source is not None and HEAD not in self.source.tensors

    def read(self, name: str) -> QTensor | None:
        """The tensor before it was quantized; of a tied head the embedding."""
        if self.source is None:
            return None
        return self.source.read(EMBEDDING if name == HEAD and self.tied else name)


def reference_of(
    artifact: Source, manifest: Manifest | None, spec: str | None, open_source: Callable[[str], Source]
) -> Reference:
    """The model `spec`, or else the manifest's source if it still exists unchanged.

    raises   InputError for a spec that cannot be opened, or is another model
    """
    if spec is not None:
        source = open_source(spec)
        why = _unlike(artifact, source)
        if why is not None:
            raise InputError(f"{spec} is not what {artifact.spec} was made from: {why}")
        return _unless_folded(artifact, source, manifest)
    if manifest is None:
        return Reference(None, "no manifest names the source; give it with --source")
    origin = manifest.source
    if origin.spec.startswith(HUB):
        return Reference(None, f"the source is {origin.spec}; give it with --source")
    try:
        source = open_source(origin.spec)
    except InputError as error:
        return Reference(None, f"the source cannot be opened ({error})")
    if source.fingerprint() != origin.fingerprint:
        return Reference(None, f"{origin.spec} has changed since")
    return _unless_folded(artifact, source, manifest)


def _unlike(artifact: Source, source: Source) -> str | None:
    """Reason why no tensor by tensor comparison is possible."""
    for name, info in artifact.tensors.items():
        own = EMBEDDING if name == HEAD and HEAD not in source.tensors else name
        if own not in source.tensors:
            return f"it has no {name}"
        if source.tensors[own].shape != info.shape:
            return f"its {name} has shape {list(source.tensors[own].shape)}, not {list(info.shape)}"
    return None


def _unless_folded(artifact: Source, source: Source, manifest: Manifest | None) -> Reference:
    if (manifest is None or folds(manifest)) and _norms_differ(artifact, source):
        return Reference(None, "its norms differ from the source's: a method folded scales into them and the weights")
    return Reference(source)


def folds(manifest: Manifest) -> bool:
    """Whether a method of the recipe folds scales."""
    document = manifest.recipe_document or {}
    methods = {manifest.method, *(rule.get("method") for rule in document.get("rules", ()))}
    return not methods.isdisjoint(FOLDING)


def _norms_differ(artifact: Source, source: Source) -> bool:
    for name, info in artifact.tensors.items():
        if len(info.shape) == 1:
            ours, theirs = dequantize(artifact.read(name)), dequantize(source.read(name))
            if np.any(np.abs(ours - theirs) > SAME_NORM * np.abs(theirs)):
                return True
    return False
