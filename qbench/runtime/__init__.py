"""The reference runtime: a source becomes a model, a model gives logits and text."""

from qbench.runtime.caches.cache import Cache
from qbench.runtime.load import load_model
from qbench.runtime.memory import predict_memory
from qbench.runtime.model import Model
from qbench.runtime.text.generate import Generation, generate
from qbench.runtime.text.opening import Opening, open_text
from qbench.runtime.text.sampling import Sampling
from qbench.runtime.text.stop_strings import StoppingStream
from qbench.runtime.text.tokenizer import TextStream, Tokenizer
from quant.models import ModelConfig

__all__ = [
    "Cache",
    "Generation",
    "Model",
    "ModelConfig",
    "Opening",
    "Sampling",
    "StoppingStream",
    "TextStream",
    "Tokenizer",
    "generate",
    "load_model",
    "open_text",
    "predict_memory",
]
