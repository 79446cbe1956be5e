"""The embedded reference models: the text they learn, their training, their weights."""

from qbench.reference.registry import MODELS, ReferenceModel, weights_dir

__all__ = ["MODELS", "ReferenceModel", "weights_dir"]
