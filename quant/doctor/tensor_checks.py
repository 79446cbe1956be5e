"""Checks of one tensor: a table of names and functions from a Measured to a finding; None if all is well."""

from collections.abc import Callable

from quant.doctor.measure import Measured
from quant.formats import get_format
from quant.models import EMBEDDING, HEAD

# Weights spread evenly over the range have 2 / levels of their codes at its ends, and a run that is scaled by its own
# extremes 2 / run more. Twice that is more clipping than a fit wants; of 4 levels all may be ends, so never above this.
SATURATION_FACTOR, MOST_SATURATION = 2.0, 0.9
# Powers of two between the median scale and the largest. One flipped exponent bit of a float16 below 1 is 16 of them;
# outlier rows and channels of real models stay below 10. Single weights and biases spread wider than scales do.
SCALE_OCTAVES, FLOAT_OCTAVES = 11, 17
# Powers of two between the outermost magnitude of plain floats and the next one. Around 0 weights are spread evenly, so
# the smallest is below 2^-16 of the second in one tensor of 65536. Single outliers of real models are a few times the
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
    """A magnitude that no other comes near, as an exponent bit that flipped leaves; unless `scale_range` reports it."""
    if scale_range(tensor) is not None:
        return None
    if len(tensor.largest) == 2 and tensor.largest[0] >= 2.0**GAP_ABOVE * tensor.largest[1]:
        most, second = tensor.largest
        return f"one weight of magnitude {most:.4g} is over 2^{GAP_ABOVE} times the next, {second:.4g}: a flipped bit?"
    if len(tensor.smallest) == 2 and tensor.smallest[0] <= 2.0**-GAP_BELOW * tensor.smallest[1]:
        least, second = tensor.smallest
        return f"one weight of magnitude {least:.4g} is below 2^-{GAP_BELOW} of the next, {second:.4g}: a flipped bit?"
    return None


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
    "sqnr": sqnr,
    "dead groups": dead_groups,
}
