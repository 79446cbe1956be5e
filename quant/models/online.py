"""Rotations that a model needs while it runs, as its config names them: those that no weight can take.

They travel under the key "online_rotations" of a config, a list of places:

down_proj   inputs of the linear that leaves a feed-forward net; its weight is in the rotated basis
keys        queries and keys of each head, after their RoPE; their products stay as they are

Each place has the matrix that `quant.turn.turn_of` gives its number of channels.
"""

from quant.errors import InputError, shown
from quant.models.values import Config

CONFIG_KEY = "online_rotations"
DOWN_PROJ, KEYS = "down_proj", "keys"
PLACES = (DOWN_PROJ, KEYS)


def online_rotations(config: Config) -> frozenset[str]:
    """raises InputError for a place that is not known"""
    places = config.get(CONFIG_KEY, ())
    if not isinstance(places, list | tuple) or not all(place in PLACES for place in places):
        raise InputError(f"{CONFIG_KEY} is {shown(places)}, expected a list of {', '.join(PLACES)}")
    return frozenset(places)
