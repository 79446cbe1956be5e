"""sha256 of single tensors, for the manifest."""

import hashlib

import numpy as np

from quant.qtensor import QTensor

TensorHashes = dict[str, str]  # canonical tensor name -> sha256 hex of its parts as the artifact stores them


def hash_tensor(qtensor: QTensor) -> str:
    """sha256 hex over the bytes of the parts in order, then of the shared arrays."""
    digest = hashlib.sha256()
    for array in (*qtensor.parts.values(), *qtensor.shared.values()):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
