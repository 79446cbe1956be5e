"""Whether calibration covers the needs of the methods: every linear, every expert, every statistic."""

from collections.abc import Iterable, Mapping

from quant.calibrated import ExpertTokens
from quant.errors import InputError
from quant.models import split_name
from quant.stats import InputStats

# Need of a method -> the field of InputStats that holds it
FIELD_OF = {"absmax": "absmax", "imatrix": "sum_squares", "hessian": "hessian", "sample": "sample"}


# Fewer tokens than this describe an expert badly: a Hessian of rank 128 for thousands of features.
FEW_TOKENS = 128


def check_coverage(needs: Mapping[str, frozenset[str]], inputs: Mapping[str, InputStats]) -> None:
    """Refuses to quantize by statistics of nothing.

    needs    name of a weight -> needs of its method
    raises   InputError naming the experts that no token reached, or the weight and the missing statistic
    """
    empty = [name for name in needs if name not in inputs or inputs[name].num_tokens == 0]
    experts = sorted({(split_name(name)[1], split_name(name)[2]) for name in empty if split_name(name)[2] is not None})
    if experts:
        layer = experts[0][0]
        which = ", ".join(str(expert) for _, expert in experts)
        raise InputError(
            f"no calibration token reached expert {which} of layer {layer}; route some to them with "
            "--min-expert-tokens N, or calibrate on more text"
        )
    if empty:
        raise InputError(f"{empty[0]}: there are no statistics of its inputs; calibrate this model")
    for name, wanted in needs.items():
        for need in sorted(wanted):
            if getattr(inputs[name], FIELD_OF[need]) is None:
                raise InputError(f"{name}: the statistics lack what its method needs ({need}); calibrate again")


def expert_tokens(names: Iterable[str], num_tokens: Mapping[str, int]) -> list[int]:
    """How many tokens reached each expert of a layer; empty for a dense layer.

    names        of the layer's tensors
    num_tokens   name of a weight -> rows of its input, absent if there are no rows
    """
    counts: dict[int, int] = {}
    for name in names:
        expert = split_name(name)[2]
        if expert is not None:
            seen = num_tokens.get(name, 0)
            counts[expert] = min(seen, counts.get(expert, seen))
    return [counts[expert] for expert in sorted(counts)]


def few_tokens_warning(experts: Mapping[str, ExpertTokens] | None) -> str | None:
    """One line on the experts that were calibrated on few tokens; None if there are no such experts.

    experts   of each layer, as a manifest keeps them
    """
    counts = {(layer, expert): n for layer, row in (experts or {}).items() for expert, n in enumerate(row.tokens)}
    few = {place: n for place, n in counts.items() if n < FEW_TOKENS}
    if not few:
        return None
    (layer, expert), least = min(few.items(), key=lambda item: item[1])
    return (
        f"{len(few)} of {len(counts)} experts were calibrated on fewer than {FEW_TOKENS} tokens (layer {layer}, expert "
        f"{expert}: {least}); --min-expert-tokens {FEW_TOKENS} routes more to them"
    )
