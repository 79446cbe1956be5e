"""kt-kernel's backends of as many bits as a format, on a layer's weights."""

import numpy as np

from qbench.kernels.benchmark import Absent
from qbench.kernels.peers.kt.experts import BACKENDS, KtExperts, KtLayer, KtSizes, fastest
from quant.formats import dequantize
from quant.qtensor import QTensor

# Those of GGUF take a layer's bytes, the others round the values of these in their own way.
BACKENDS_OF = {
    "q4_k": ("Q4_K", "RAWINT4", "INT4"),
    "w4g128": ("RAWINT4", "INT4"),
    "q8_0": ("Q8_0", "INT8", "FP8"),
    "w8a8": ("INT8", "FP8"),
    "bf16": ("BF16",),
}


class KtLayers:
    """A layer in each backend that holds it, loaded when first asked for and kept for calls of other tokens.

    qtensors  gate, up [I, K] and down [K, I] of every expert
    sizes     as KtLayer has them
    """

    def __init__(self, format_name: str, qtensors: list[QTensor], sizes: KtSizes) -> None:
        self.names = [name for name in BACKENDS_OF.get(format_name, ()) if holds(name, sizes)]
        self.qtensors = dict(zip(("gate", "up", "down"), qtensors, strict=True))
        self.sizes = sizes
        self.layers: dict[str, KtLayer] = {}

    def contender(self, x: np.ndarray, routes: list[tuple[np.ndarray, np.ndarray]]) -> KtExperts:
        """The fastest of them at these calls. raises Absent if there is no such library"""
        if not self.names:
            raise Absent("no backend holds rows of these sizes")
        for name in self.names:
            if name not in self.layers:
                self.layers[name] = KtLayer(name, self.sizes, self.weights(name))
        return fastest({name: KtExperts(layer, x, routes) for name, layer in self.layers.items()})

    def weights(self, backend: str) -> dict[str, np.ndarray]:
        """Weights of one expert in KtLayer's form; all experts have the same."""
        is_gguf = BACKENDS[backend].is_gguf
        return {p: (q.parts["blocks"] if is_gguf else dequantize(q))[None] for p, q in self.qtensors.items()}

    def close(self) -> None:
        for layer in self.layers.values():
            layer.close()


def holds(backend: str, sizes: KtSizes) -> bool:
    return all(size % BACKENDS[backend].multiple == 0 for size in (sizes["hidden_size"], sizes["ffn_size"]))
