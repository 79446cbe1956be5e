"""Where activations stop being finite: the first window, token and layer, found by running one window again.

Logits are checked in every evaluation. Layers are looked at only after such a logit was found, since one call may run
all of them.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from qbench.measure.quality_figures import NonFinite
from qbench.quality.protocols.forward import Outputs, batches, pieces
from qbench.quality.protocols.scoring import Scoring
from qbench.runtime.attention.rotations import Rotation
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.step import Step
from qbench.runtime.layers.block import Block
from qbench.runtime.model import Model
from quant.present import present

EMBEDDING, ATTENTION, FEED_FORWARD, HEAD = "embedding", "attention", "feed-forward net", "head"


class _Watched:
    """Layers one by one in Python, in place of a model's `paths`; remembers the first activation that is not finite."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self.found: tuple[int | None, str, int, str] | None = None  # layer, part, token, NaN or inf

    def choose(self, cache: Any, num_tokens: int) -> tuple[str, "_Watched"]:
        return "watched", self

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], step: Step, cache: Cache, last_only: bool) -> Tensor:
        self.look(x, None, EMBEDDING)
        for layer, block in enumerate(self.blocks):
            x = block.attend(x, rotations, step.positions, cache)  # [1, T, K]
            self.look(x, layer, ATTENTION)
            x = block.feed_forward(x, block.feed_forward_norm, x)
            self.look(x, layer, FEED_FORWARD)
        return step.wanted(x, last_only)

    def look(self, x: Tensor, layer: int | None, part: str) -> None:
        if self.found is None and not x.isfinite().all():
            self.found = (layer, part, *_first(x[0]))


def _first(rows: Tensor) -> tuple[int, str]:
    """Number of the first row of [T, K] with a value that is not finite, and its kind."""
    token = int((~rows.isfinite()).any(dim=-1).nonzero()[0])
    return token, "NaN" if rows[token].isnan().any() else "inf"


@torch.inference_mode()
def find_non_finite(model: Any, scorings: Sequence[Scoring], vocab_size: int) -> NonFinite | None:
    """The first window with a logit that is not finite, and its first layer; None if all logits are finite now."""
    for batch in batches(scorings, vocab_size):
        outputs, num_columns = Outputs.of(model, batch.tokens), batch.tokens.shape[1]
        for row, uses in enumerate(batch.uses):
            scoring, window = uses[0]
            start, length = row * num_columns, len(present(scorings[scoring]).windows[window].tokens)
            for piece in pieces(start, start + length, vocab_size):
                logits = outputs.logits(piece)
                if not logits.isfinite().all():
                    token, kind = _first(logits)
                    return _find(model, batch.tokens[row, :length], window, piece.start - start + token, kind)
    return None


def _find(model: Any, tokens: Tensor, window: int, token: int, kind: str) -> NonFinite:
    """tokens [T]; the first token whose logits are not finite. A model without blocks in Python has no layer."""
    if not isinstance(model, Model):
        return NonFinite(window, token, kind)
    watched, again = _Watched(model.blocks), copy(model)
    again.paths = watched  # type: ignore[assignment]
    again(tokens[None])
    if watched.found is None:
        return NonFinite(window, token, kind, part=HEAD)
    layer, part, first, kind = watched.found
    return NonFinite(window, first, kind, layer=layer, part=part)
