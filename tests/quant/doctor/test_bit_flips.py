"""One flipped bit per tensor: the share that the doctor finds, by the bit, without a source and without a manifest."""

import numpy as np
import pytest
from support.damage import edit_gguf

from quant.doctor.measure import measure
from quant.doctor.tensor_checks import TENSOR_CHECKS
from quant.formats import get_format
from quant.qtensor import QTensor

SEED, FLIPS, ROWS, COLUMNS, SIGMA = 20240217, 100, 128, 256, 0.02
# format -> (uint of a float, lowest exponent bit, number of exponent bits)
FLOATS = {"bf16": ("<u2", 7, 8), "f16": ("<u2", 10, 5), "f32": ("<u4", 23, 8)}
# Exponent bits from the lowest on; at least this share of flips is found. A flip that only doubles or halves a weight
# leaves a plausible weight, so that no check of values can find it: the manifest's hashes do.
FOUND = {
    "bf16": {7: 1.0, 6: 0.95, 5: 0.6},
    "f16": {4: 1.0},
    "f32": {7: 1.0, 6: 0.95, 5: 0.6},
}


def flipped(fmt: str, bit: int, rng: np.random.Generator) -> QTensor:
    dtype, first, _ = FLOATS[fmt]
    weight = rng.normal(0, SIGMA, (ROWS, COLUMNS)).astype(np.float32)
    qtensor = get_format(fmt).quantize(weight)
    (name,) = qtensor.parts
    words = np.ascontiguousarray(qtensor.parts[name]).view(dtype).copy()
    words.reshape(-1)[rng.integers(words.size)] ^= words.dtype.type(1 << (first + bit))
    return QTensor(fmt, qtensor.shape, {name: words.view(qtensor.parts[name].dtype)}, qtensor.shared)


def is_found(qtensor: QTensor) -> bool:
    measured = measure("model.layers.0.mlp.up_proj.weight", qtensor, None)
    return any(find(measured) is not None for find in TENSOR_CHECKS.values())


@pytest.mark.parametrize("fmt", FLOATS)
def test_exponent_flips_that_change_a_weight_by_orders_of_magnitude_are_found(fmt):
    rng = np.random.default_rng(SEED)
    for bit, least in FOUND[fmt].items():
        share = np.mean([is_found(flipped(fmt, bit, rng)) for _ in range(FLIPS)])
        assert share >= least, f"bit {bit}: {share}"


@pytest.mark.parametrize("fmt", FLOATS)
def test_whole_tensors_are_healthy(fmt):
    """One tensor in 65536 has a smallest weight that lies alone as a flipped one would."""
    rng = np.random.default_rng(SEED)
    found = sum(
        is_found(get_format(fmt).quantize(rng.normal(0, SIGMA, (64, 64)).astype(np.float32))) for _ in range(200)
    )
    assert found <= 2


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "q5_1", "iq4_nl"])
def test_the_highest_exponent_bit_of_a_blocks_scale_is_found(fmt):
    """It is 0 in a float16 below 2, as scales are, so a flip multiplies by 2^16."""
    rng = np.random.default_rng(SEED)
    for _ in range(20):
        qtensor = get_format(fmt).quantize(rng.normal(0, SIGMA, (64, COLUMNS)).astype(np.float32))
        (name,) = qtensor.parts
        parts = np.ascontiguousarray(qtensor.parts[name]).copy()
        parts.view(np.uint8).reshape(64, -1)[rng.integers(64), 1] ^= np.uint8(1 << 6)
        assert is_found(QTensor(fmt, qtensor.shape, {name: parts}, qtensor.shared))


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "q5_1"])
def test_with_a_manifest_every_flip_is_found(copy_of, findings, fmt):
    """Codes, scales and exponents alike: the hash of the tensor is another."""
    rng = np.random.default_rng(SEED)

    def flip(rows):
        rows[rng.integers(len(rows)), rng.integers(rows.shape[1])] ^= np.uint8(1 << rng.integers(8))

    for _ in range(5):
        path = copy_of(fmt)
        edit_gguf(path, "blk.1.ffn_up.weight", "u1", flip)
        assert ("hash", "model.layers.1.mlp.up_proj.weight") in findings(path)
