"""The reference runtime: a source becomes a model, a model gives logits and text."""

from qbench.runtime.cache import Cache, DenseCache
from qbench.runtime.generate import Generation, generate
from qbench.runtime.load import load_model, set_threads
from qbench.runtime.memory import predict_memory
from qbench.runtime.model import Model
from qbench.runtime.sampling import Sampling
from qbench.runtime.tokenizer import TextStream, Tokenizer
from quant.models import ModelConfig

__all__ = [
    "Cache",
    "DenseCache",
    "Generation",
    "Model",
    "ModelConfig",
    "Sampling",
    "TextStream",
    "Tokenizer",
    "generate",
    "load_model",
    "predict_memory",
    "set_threads",
]
