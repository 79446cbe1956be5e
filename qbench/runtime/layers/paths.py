"""Which code runs the decoder layers in a forward pass: one table, best first. Everyone who needs to know asks here.

    layers           all layers in one call of cpu_kernels
    latent-layers    all layers with latent attention in one call, for forward passes of few tokens
    steps            layer by layer; attention is one call and the feed-forward net is one call
    attention-steps  layer by layer; attention is one call, the net runs in Python
    net-steps        layer by layer; attention runs in Python over any cache, the net is one call
    python           layer by layer; norms, products, rotation, attention and activation are calls from Python

A single call exists only for weights that cpu_kernels have packed. In rows with steps, a layer without such weights
runs in Python. The products themselves are rows of another table, `linear.LINEARS`.

`Model` asks `LayerPaths` per forward pass, when weights and cache are known. Memory planning asks `planned_path` before
there are weights. `BlockBuilder` builds the halves, and reports attention that runs in torch, by the conditions of
`kernel_steps.py`, which are the conditions of the rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from qbench.runtime.attention.rotations import Rotation
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.step import Step
from qbench.runtime.caches.storage.latent_format import has_latent_kernels
from qbench.runtime.kernel_steps import has_attention_step, has_net_step
from qbench.runtime.layers.block import Block, Blocks
from qbench.runtime.layers.kernel_layers import kernel_layers
from qbench.runtime.layers.latent_layers import LatentLayers, latent_layers
from qbench.words.written import nearest
from quant.errors import InputError
from quant.models import ModelConfig


class Runner(Protocol):
    """The layers of a loaded model, over caches that its row takes."""

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], step: Step, cache: Any, last_only: bool) -> Tensor:
        """x [B, T, K] -> the wanted tokens of [B, T, K], see `Step.wanted`; the cache then holds the new tokens."""
        ...


@dataclass(frozen=True, slots=True)
class LayerPath:
    """One row: `run_by` runs the layers if the architecture, the weights and the cache allow it.

    suits   whether the architecture allows it
    run_by  the runner of these blocks, or None if cpu_kernels have not packed the weights that it needs
    in_stores  whether the keys and values have to be in stores of cpu_kernels
    takes   whether the runner takes this many tokens per sequence over this cache; None: any number over any cache
    """

    name: str
    suits: Callable[[ModelConfig], bool]
    run_by: Callable[[Sequence[Block]], Runner | None]
    in_stores: bool = False
    takes: Callable[[Any, Any, int], bool] | None = None


def _in_one_call(config: ModelConfig) -> bool:
    is_dense = config.mla is None and config.moe is None
    return is_dense and _has_steps(config) and _attends_uniformly(config)


def _latents_in_one_call(config: ModelConfig) -> bool:
    has_kernels = config.mla is not None and has_latent_kernels(config.mla)
    return has_kernels and has_net_step(config) and _attends_uniformly(config)


def _has_steps(config: ModelConfig) -> bool:
    return has_attention_step(config) and has_net_step(config)


def _attends_uniformly(config: ModelConfig) -> bool:
    """Whether all layers attend by one rule and one rotation."""
    rules = {config.attention_rule(layer) for layer in range(config.num_layers)}
    return len(rules) == 1 and config.local_rope is None


def _always(config: ModelConfig) -> bool:
    return True


def _in_steps(blocks: Sequence[Block], *, attention: bool, net: bool) -> Blocks | None:
    """The blocks with these halves as single calls; None if one of the two has no layer that can be one."""
    if attention and all(block.attention.step is None for block in blocks):
        return None
    if net and all(block.feed_forward.step is None for block in blocks):
        return None
    return Blocks([block.in_steps(attention=attention, net=net) for block in blocks])


def _has_kernel_view(runner: Runner, cache: Cache, num_tokens: int) -> bool:
    return cache.has_kernel_view(num_tokens)


def _has_layer_views(runner: Runner, cache: Cache, num_tokens: int) -> bool:
    return cache.has_layer_views(num_tokens)


LAYERS = LayerPath("layers", _in_one_call, kernel_layers, in_stores=True, takes=_has_kernel_view)
LATENT_LAYERS = LayerPath("latent-layers", _latents_in_one_call, latent_layers, takes=LatentLayers.takes)
STEPS = LayerPath(
    "steps", _has_steps, partial(_in_steps, attention=True, net=True), in_stores=True, takes=_has_layer_views
)
ATTENTION_STEPS = LayerPath(
    "attention-steps",
    has_attention_step,
    partial(_in_steps, attention=True, net=False),
    in_stores=True,
    takes=_has_layer_views,
)
NET_STEPS = LayerPath("net-steps", has_net_step, partial(_in_steps, attention=False, net=True))
PYTHON = LayerPath("python", _always, Blocks)

PATHS = (LAYERS, LATENT_LAYERS, STEPS, ATTENTION_STEPS, NET_STEPS, PYTHON)

AUTO = "auto"  # the best row that can run a forward pass
PATH_NAMES = (AUTO, *(path.name for path in PATHS))


class LayerPaths:
    """The rows of the table that a model's architecture and weights allow, best first, each with its runner.

    wanted   "auto", or the name of the only row that may run
    raises   InputError for an unknown name, and for a row that this model does not allow
    """

    def __init__(self, blocks: Sequence[Block], config: ModelConfig, wanted: str = AUTO) -> None:
        check_path(wanted)
        built = [(path, path.run_by(blocks)) for path in PATHS if path.suits(config)]
        allowed = [(path, runner) for path, runner in built if runner is not None]
        self._rows = [row for row in allowed if wanted in (AUTO, row[0].name)]
        if not self._rows:
            names = ", ".join(path.name for path, _ in allowed)
            raise InputError(f"path {wanted!r} needs another architecture or packed weights; this model has: {names}")

    @property
    def names(self) -> list[str]:
        return [path.name for path, _ in self._rows]

    def choose(self, cache: Cache, num_tokens: int) -> tuple[LayerPath, Runner]:
        """The row that runs a forward pass of `num_tokens` per sequence over the cache, once that has begun it.

        raises   InputError if the only row that may run does not take the forward pass
        """
        for path, runner in self._rows:
            if path.takes is None or path.takes(runner, cache, num_tokens):
                return path, runner
        raise InputError(
            f"path {self.names[0]!r} does not take a forward pass of {num_tokens} tokens over a {type(cache).__name__}"
        )


def planned_path(config: ModelConfig, *, is_packed: bool, in_stores: bool) -> LayerPath:
    """The row that runs a prefill, where memory has its peak, as far as it follows without weights and cache.

    is_packed  whether cpu_kernels pack all weights of the layers
    in_stores  whether the cache keeps keys and values in stores of cpu_kernels
    """
    return next(
        path
        for path in PATHS
        if path is PYTHON
        or (is_packed and path is not LATENT_LAYERS and path.suits(config) and (in_stores or not path.in_stores))
    )


def check_path(name: str) -> None:
    """raises InputError for a name that is not in PATH_NAMES"""
    if name not in PATH_NAMES:
        raise InputError(f"path {name!r} is unknown; known: {', '.join(PATH_NAMES)}{nearest(name, PATH_NAMES)}")
