"""Rules by which experts stay within a memory limit; `runtime.offload.experts` follows them."""

from qbench.nearest import nearest
from quant.errors import InputError

# dynamic: those that were used last, whichever they are. The others fix experts that stay: as many in each layer, those
# that were chosen most often, those of the first layers, those of the last.
DYNAMIC, UNIFORM, FREQUENCY, EARLY, LATE = "dynamic", "uniform", "frequency", "early", "late"
PLACEMENTS = (DYNAMIC, UNIFORM, FREQUENCY, EARLY, LATE)


def check_placement(name: str) -> None:
    if name not in PLACEMENTS:
        known = ", ".join(PLACEMENTS)
        raise InputError(f"expert placement {name!r} is unknown; known: {known}{nearest(name, PLACEMENTS)}")
