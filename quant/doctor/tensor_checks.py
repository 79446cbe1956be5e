"""Checks of one tensor: a table of names and functions from a Measured to a finding; None if all is well."""

from collections.abc import Callable, Sequence

from quant.doctor.extremes import (
    LEAST_SHARE,
    MOST_CHANCE,
    NUM_LARGEST,
    chance_of_largest,
    chance_of_smallest,
    chance_of_smallest_scale,
)
from quant.doctor.measure import Measured
from quant.formats import get_format
from quant.models import EMBEDDING, HEAD

# Weights spread evenly over the range have 2 / levels of their codes at its ends, and a run that is scaled by its own
# extremes 2 / run more. Twice that is more clipping than a fit wants; of 4 levels all may be ends, so never above this.
SATURATION_FACTOR, MOST_SATURATION = 2.0, 0.9
# Without a hash a flipped bit is found by its value alone: tests/quant/doctor/test_bit_flips.py.
LEAST_FOUND = 0.95
FLIPS_FOUND = (
    f"values alone show at least {100 * LEAST_FOUND:.0f} % of flips of the highest exponent bit of a weight or scale, "
    "in bf16 and f32 of the two highest, and few of the others"
)
# Powers of two between the median scale and the largest. One flipped exponent bit of a float16 below 1 is 16 of them;
# outlier rows and channels of real models stay below 10. Single weights and biases spread wider than scales do.
SCALE_OCTAVES, FLOAT_OCTAVES = 11, 17
# Powers of two between the outermost magnitude of plain floats and the next one. Around 0 weights are spread evenly, so
# the smallest is below 2^-16 of the second in one vector of 65536. Single outliers of real models are a few times the
# next.
GAP_BELOW, GAP_ABOVE = 16, 6
# Share of groups, in a tensor whose reference is not known. Padding of a vocabulary is zeros, so embedding and head may
# have any number of them.
MOST_DEAD = 0.01
# SQNR of b bits grows by 6.02 dB a bit. Two bits less than there are leave room for heavy tails and for error feedback,
# which moves weights away from their own nearest codes; a tensor that is another's has -3 dB.
DB_PER_BIT, SPARE_BITS, MOST_DB_ASKED = 6.02, 2, 20.0
# Onto so few levels error feedback alone moves some rows further from the source's than zeros are.
FEW_LEVELS = 4


def not_finite(tensor: Measured) -> str | None:
    if tensor.num_not_finite:
        return f"{tensor.num_not_finite} weights are NaN or inf"
    return None


def saturation(tensor: Measured) -> str | None:
    if tensor.saturation is None:
        return None
    most = min(SATURATION_FACTOR * (2 / tensor.num_levels + 2 / tensor.run), MOST_SATURATION)
    if tensor.saturation > most:
        share = f"{100 * tensor.saturation:.1f} %"
        return f"{share} of codes are at the ends of the range, expected at most {100 * most:.1f} %: scales too small"
    return None


def scale_range(tensor: Measured) -> str | None:
    if tensor.num_bad_scales:
        return f"{tensor.num_bad_scales} weights have a scale that is NaN, inf, negative, or 0 under codes that are not"
    middle, most = tensor.median_exponent, SCALE_OCTAVES if tensor.num_levels else FLOAT_OCTAVES
    if middle is not None and max(tensor.exponents) - middle >= most:
        what = "scale" if tensor.num_levels else "magnitude"
        octaves = max(tensor.exponents) - middle
        return f"the largest {what} is {tensor.scale_max:.4g}, 2^{octaves} times the median; expected below 2^{most}"
    return None


def lone_weight(tensor: Measured) -> str | None:
    """A magnitude that no other comes near, as an exponent bit that flipped leaves; unless `scale_range` reports it.

    The tails of a matrix show which distance is normal; a vector has too few weights for that.
    """
    if tensor.num_levels or len(tensor.largest) < 2 or scale_range(tensor) is not None:
        return None
    is_matrix = len(tensor.shape) > 1
    (most, second), (least, next_least) = tensor.largest[:2], tensor.smallest[:2]
    if most >= 2.0**GAP_ABOVE * second or (is_matrix and _is_far(tensor, chance_of_largest, tensor.largest)):
        return f"one weight of magnitude {most:.4g} is {most / second:.3g} times the next, {second:.4g}: a flipped bit?"
    if least <= 2.0**-GAP_BELOW * next_least or (is_matrix and _is_far(tensor, chance_of_smallest, tensor.smallest)):
        return f"one weight of magnitude {least:.4g} is too close to 0 for chance: a flipped bit?"
    return None


def lone_scale(tensor: Measured) -> str | None:
    """A group's scale that no other comes near. Rows of a scale each may be nearly 0, as those of dead channels."""
    if not tensor.num_levels or len(tensor.largest) < 2 or scale_range(tensor) is not None:
        return None
    (most, second), (least, next_least) = tensor.largest[:2], tensor.smallest[:2]
    if _is_far(tensor, chance_of_largest, tensor.largest):
        return f"one scale of {most:.4g} is {most / second:.3g} times the next, {second:.4g}: a flipped bit?"
    if tensor.run < tensor.shape[-1] and _is_far(tensor, chance_of_smallest_scale, tensor.smallest[:NUM_LARGEST]):
        return f"one scale of {least:.4g} is {least / next_least:.3g} times the next, {next_least:.4g}: a flipped bit?"
    return None


def _is_far(tensor: Measured, chance: Callable[[Sequence[float]], float], ends: Sequence[float]) -> bool:
    """Whether the outermost magnitude is too far out for chance, if there are enough to know the tail."""
    is_known = len(ends) >= NUM_LARGEST and tensor.num_magnitudes >= LEAST_SHARE * len(ends)
    return is_known and chance(ends) < MOST_CHANCE


def sqnr(tensor: Measured) -> str | None:
    if tensor.sqnr_db is None:
        return None
    bits = get_format(tensor.format).bits_per_weight
    least = min(DB_PER_BIT * (int(bits) - SPARE_BITS), MOST_DB_ASKED)
    if tensor.sqnr_db < least:
        return f"SQNR {tensor.sqnr_db:.1f} dB against the source, expected {least:.1f} dB or more"
    if tensor.num_lost_rows and not 0 < tensor.num_levels <= FEW_LEVELS:
        return f"{tensor.num_lost_rows} rows are further from the source's than zeros are"
    return None


def dead_groups(tensor: Measured) -> str | None:
    if tensor.num_killed_groups:
        return f"{tensor.num_killed_groups} of {tensor.num_groups} groups are all zeros, and not in the source"
    if tensor.signal is not None or tensor.name in (EMBEDDING, HEAD) or not tensor.num_groups:
        return None
    if tensor.num_dead_groups > MOST_DEAD * tensor.num_groups:
        return f"{tensor.num_dead_groups} of {tensor.num_groups} groups are all zeros"
    return None


TENSOR_CHECKS: dict[str, Callable[[Measured], str | None]] = {
    "finite": not_finite,
    "saturation": saturation,
    "scale range": scale_range,
    "lone weight": lone_weight,
    "lone scale": lone_scale,
    "sqnr": sqnr,
    "dead groups": dead_groups,
}
