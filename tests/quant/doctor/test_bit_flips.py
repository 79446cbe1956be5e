"""One flipped bit per tensor: the share that the doctor finds, by the bit, without a source and without a manifest."""

import numpy as np
import pytest
from support.bit_flips import (
    COLUMNS,
    FLIPS,
    FLOATS,
    LAWS,
    SEED,
    SIGMA,
    false_alarms,
    is_found,
    matrices,
    num_findable,
    num_found,
)
from support.damage import edit_gguf

from quant.artifacts import GGUFSource
from quant.artifacts.manifest import hash_tensor
from quant.doctor.tensor_checks import FLIPS_FOUND, LEAST_FOUND
from quant.formats import get_format
from quant.qtensor import QTensor
from quant.verify import differences

# Exponent bits from the lowest on; at least this share of flips is found. A flip that only doubles or halves a weight
# leaves a plausible weight, so that no check of values can find it: the manifest's hashes do.
FOUND = {
    "bf16": {7: 1.0, 6: LEAST_FOUND, 5: 0.95, 3: 0.15, 2: 0.3},
    "f16": {4: 1.0},
    "f32": {7: 1.0, 6: LEAST_FOUND, 5: 0.95, 3: 0.15, 2: 0.3},
}


FEW = 40  # flips, of which a share is compared with another one


@pytest.mark.parametrize("fmt", FLOATS)
def test_exponent_flips_that_change_a_weight_by_orders_of_magnitude_are_found(fmt):
    rng = np.random.default_rng(SEED)
    for bit, least in FOUND[fmt].items():
        share = num_found(fmt, bit, rng) / FLIPS
        assert share >= least, f"bit {bit}: {share}"


@pytest.mark.parametrize("fmt", ["bf16", "q4_0"])
@pytest.mark.parametrize("law", LAWS)
def test_whole_tensors_are_healthy(law, fmt):
    """One tensor in 30,000 has an outermost weight or scale that is as far from others as a flipped one."""
    assert (
        false_alarms(lambda rng: LAWS[law](rng, (64, 256)).astype(np.float32), fmt, 50, np.random.default_rng(SEED))
        == 0
    )


@pytest.mark.parametrize("fmt", ["bf16", "q4_0"])
def test_no_matrix_of_a_reference_model_raises_an_alarm(fmt):
    assert not any(is_found(get_format(fmt).quantize(weight)) for weight in matrices("ref:llama"))


@pytest.mark.parametrize("fmt", FLOATS)
def test_a_detector_that_knows_the_law_finds_the_same_number(fmt):
    """The rest is lost: a lower bit moves a weight to where others are."""
    for bit in FOUND[fmt].keys() - {2}:  # the tail that a doctor must guess costs a quarter of the flips of bit 2
        most = num_findable(fmt, bit, np.random.default_rng(SEED), FEW)
        assert num_found(fmt, bit, np.random.default_rng(SEED), FEW) >= most - 2, bit
    assert num_findable(fmt, 0, np.random.default_rng(SEED), FEW) == 0


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "q4_k", "q6_k"])
@pytest.mark.parametrize("bit", [4, 3])
def test_high_exponent_bits_of_a_blocks_scale_are_found(fmt, bit):
    assert num_found(fmt, bit, np.random.default_rng(SEED), flips=20) >= 19


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


def test_without_a_manifest_the_found_share_is_reported(copy_of, report):
    told = report(copy_of("q8_0", manifest=False)).skipped["hash"]
    assert told.endswith(FLIPS_FOUND) and f"at least {100 * LEAST_FOUND:.0f} % of flips" in told


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "q5_1"])
def test_with_a_manifest_every_flip_is_found(copy_of, findings, fmt):
    """For codes, scales and exponents: the hash of the tensor is another."""
    rng = np.random.default_rng(SEED)

    def flip(rows):
        rows[rng.integers(len(rows)), rng.integers(rows.shape[1])] ^= np.uint8(1 << rng.integers(8))

    for _ in range(5):
        path = copy_of(fmt)
        edit_gguf(path, "blk.1.ffn_up.weight", "u1", flip)
        assert ("hash", "model.layers.1.mlp.up_proj.weight") in findings(path)


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "q5_1"])
def test_verify_finds_the_flip_of_every_bit_of_a_block(made, copy_of, fmt):
    path, whole = copy_of(fmt), GGUFSource(made(fmt))
    for number in range(8 * get_format(fmt).block_bytes):

        def flip(rows, number=number):
            rows[1, number // 8] ^= np.uint8(1 << number % 8)

        edit_gguf(path, "blk.1.ffn_up.weight", "u1", flip)
        found = differences(GGUFSource(path), whole, "gguf") if number % 64 == 0 else changed(path, whole)
        assert list(found) == [("model.layers.1.mlp.up_proj.weight", "its bytes differ")], number
        edit_gguf(path, "blk.1.ffn_up.weight", "u1", flip)


def changed(path, whole):
    """As `differences`, of the one tensor."""
    name = "model.layers.1.mlp.up_proj.weight"
    if hash_tensor(GGUFSource(path).read(name)) != hash_tensor(whole.read(name)):
        yield name, "its bytes differ"
