"""How queries of each decoder layer weigh the keys before them, and which layers attend only to a window of them."""

from collections.abc import Callable
from dataclasses import dataclass

from quant.errors import InputError, shown
from quant.models.values import Config, count, flag

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """softmax(scale * q k^T) v, with the additions of some architectures.

    scale      factor of products of queries and keys
    window     keys that a query sees, its own included; 0: all before it
    softcap    scores s become softcap * tanh(s / softcap); 0: no cap
    has_alibi  scores fall with the distance of the key, by each head's own slope
    """

    scale: float
    window: int = 0
    softcap: float = 0.0
    has_alibi: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether scores are the scaled products as they are, of all keys or of a window of them."""
        return self.softcap == 0 and not self.has_alibi


def _every(config: Config, layer: int) -> bool:
    return True


def _from_a_layer(config: Config, layer: int) -> bool:
    """Qwen: the layers from `max_window_layers` on, where windows are switched on."""
    return flag(config, "use_sliding_window") and layer >= count(config, "max_window_layers", 0, least=0)


def _but_last_of_each_group(config: Config, layer: int) -> bool:
    """Gemma: groups of `sliding_window_pattern` layers, the last of which attends to everything."""
    return (layer + 1) % count(config, "sliding_window_pattern") != 0


# Pattern of an architecture's layers if its config has no `layer_types`
PATTERNS: dict[str, Callable[[Config, int], bool]] = {
    "every": _every,
    "from a layer": _from_a_layer,
    "but the last of each group": _but_last_of_each_group,
}


def window_of_layers(config: Config, pattern: str | None, num_layers: int) -> tuple[int, ...]:
    """Number of keys that a query sees in each layer, its own included; 0: all before it; () if no layer has a window.

    pattern  a key of PATTERNS; None: an architecture without windows
    raises   InputError for layers of an unknown type, or a window that the architecture has no place for
    """
    given = config.get("layer_types")
    if given is None:
        is_local = [pattern is not None and PATTERNS[pattern](config, layer) for layer in range(num_layers)]
    else:
        is_local = _by_type(given, num_layers)
    if pattern is None and config.get("use_sliding_window"):
        raise InputError("use_sliding_window is set, and this architecture has no attention over a window")
    if not any(is_local) or (pattern == "every" and config.get("sliding_window") is None):
        return ()
    if pattern is None:
        raise InputError(f"layer_types names {SLIDING}, and this architecture has no attention over a window")
    window = count(config, "sliding_window")
    return tuple(window if local else 0 for local in is_local)


def _by_type(layer_types: object, num_layers: int) -> list[bool]:
    if not isinstance(layer_types, list) or len(layer_types) != num_layers:
        raise InputError(f"layer_types is {shown(layer_types)}, expected a list of {num_layers} types")
    unknown = [kind for kind in layer_types if kind not in (FULL, SLIDING)]
    if unknown:
        raise InputError(f"layer_types names {shown(unknown[0])}, known: {FULL}, {SLIDING}")
    return [kind == SLIDING for kind in layer_types]
